"""Golden model of the switch: a frame goes in, frames come out, counters and registers follow.

The model has no clocks and no queues, so nothing is ever dropped at egress. The frames that one received frame
causes come in this order: ordinary copies by port; a reply to the ingress port; results, slot by slot, each by port and
on a port by member, a GRANT like a result. A READ sees all earlier frames and its own `RX_FRAMES`, not its own outcome.

The class says in which order a frame is handled. The rules of each step are functions without state in the rooms that
it calls.
"""

import numpy as np

from iswitch.config import Config
from iswitch.golden.bridge.flood_limit import FloodLimit
from iswitch.golden.bridge.forwarder import BPDU, MacTable, destinations
from iswitch.golden.bridge.responder import answer
from iswitch.golden.bridge.spoofing import is_group_source, is_spoofed
from iswitch.golden.control import ControlPlane
from iswitch.golden.decide import claims as claims_of
from iswitch.golden.decide import ring
from iswitch.golden.decide.checks import failed_check
from iswitch.golden.decide.claims import Answer, Claims
from iswitch.golden.decide.job import Job, record_activity
from iswitch.golden.decide.slot import Step
from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import ADDRESS_BYTES, FLAT, is_ours, parse
from iswitch.golden.interface.message import Datagram, Message, Source
from iswitch.golden.numeric import lane
from iswitch.golden.replay.service import Service
from iswitch.wire import ContributionFlag, Mode, Outcome, PortCounter, Reason, Stat, Type

__all__ = ["Frames", "Switch"]

Frames = list[tuple[int, bytes]]
"""Frames with the ports by which they leave, in order."""

RUNT_BYTES = 60
"""Shorter frames, without FCS, are runts."""
NOTICED = {
    Outcome.JOB: Reason.JOB,
    Outcome.EPOCH: Reason.EPOCH,
    Outcome.MEMBER: Reason.MEMBER,
    Outcome.TOKEN: Reason.TOKEN,
    Outcome.PORT: Reason.PORT,
    Outcome.ADDRESS: Reason.ADDRESS,
    Outcome.HALTED: Reason.HALTED,
}
"""Outcomes that are answered by a NOTICE."""


class Switch(ControlPlane):
    """One switch outside any tree. Parameters as of `JobTable`."""

    types: tuple[Type, ...] = FLAT
    """The messages that it handles, besides the replay service's."""

    def __init__(self, config: Config, *, mac: bytes, ip: bytes, seed: int, operator_key: int = 0) -> None:
        super().__init__(config, mac=mac, ip=ip, seed=seed, operator_key=operator_key)
        self.macs = MacTable(config.mac_entries)
        self.flood_limit = FloodLimit(config.ports, config.flood_interval_us)
        self.linked = set(range(config.ports))

    def set_link(self, port: int, up: bool) -> None:
        """Take a port's link up or down. The stations of a port whose link is down are removed."""
        if up:
            self.linked.add(port)
        else:
            self.linked.discard(port)
            self.macs.flush(port)

    def receive(self, port: int, frame: bytes, now_us: int, error: bool = False, *, overflow: bool = False) -> Frames:
        """Handle one frame.

        Parameters
        ----------
        port : int
            The port by which the frame came in.
        frame : bytes
            The frame without FCS.
        now_us : int
            The time in microseconds.
        error : bool
            Whether the FCS was bad.
        overflow : bool
            Whether the port had no room for the frame.

        Returns
        -------
        list of (int, bytes)
            The frames that leave, with their ports, in order.
        """
        self.macs.advance(now_us)
        self.flood_limit.advance(now_us)
        self.keep_silences(now_us)
        rejected = PortCounter.RX_OVERFLOW if overflow else self.rejected_by_port(frame, error)
        if rejected is not None:
            self.port_counters[port][rejected] += 1
            return []
        self.port_counters[port][PortCounter.RX_FRAMES] += 1
        outcome, sent = self.handle_frame(port, frame, now_us)
        if port in self.linked:
            self.macs.learn(frame[6:12], port, self.own.mac)
        self.outcomes[outcome] += 1
        for egress, _ in sent:
            self.port_counters[egress][
                PortCounter.TX_FRAMES if egress in self.linked else PortCounter.TX_LINK_DOWN
            ] += 1
        return [(egress, data) for egress, data in sent if egress in self.linked]

    def rejected_by_port(self, frame: bytes, error: bool) -> PortCounter | None:
        """Return the counter of a frame that does not reach the core, or None."""
        if error:
            return PortCounter.RX_ERROR
        if len(frame) < RUNT_BYTES:
            return PortCounter.RX_RUNT
        return PortCounter.RX_OVERSIZE if len(frame) > self.config.frame_bytes_max else None

    def handle_frame(self, port: int, frame: bytes, now_us: int) -> tuple[Outcome, Frames]:
        """Return the outcome of a frame that reached the core, and what it sends."""
        if is_spoofed(frame, self.own) or is_ours(frame, self.own.ip) and is_group_source(frame):
            return Outcome.SPOOFED, []
        message = parse(port, frame, self.own.ip, self.accepted_types())
        if message == Outcome.ORDINARY:
            return self.forward(port, frame)
        if isinstance(message, Outcome):
            return message, []
        outcome, sent = self.handle(message, frame[ADDRESS_BYTES:], now_us)
        return outcome, [(to.port, compose.frame(self.own, to, payload)) for to, payload in sent]

    def accepted_types(self) -> tuple[Type, ...]:
        """Return the messages that the switch handles."""
        return (*self.types, Type.REQUEST) if self.service else self.types

    def handle(self, message: Message, payload: bytes, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Return the outcome of a message, whose whole UDP payload is `payload`, and what it sends."""
        if message.type == Type.CONTROL:
            return self.handle_control(message, now_us)
        if self.service and message.type == Type.REQUEST:
            return Outcome.REPLAY, self.serve(self.service, message.source, payload, now_us)
        return self.handle_message(message, now_us)

    def forward(self, port: int, frame: bytes) -> tuple[Outcome, Frames]:
        """Forward or answer an ordinary frame. Its destination is looked up before its source is learnt."""
        if reply := answer(frame, self.own):
            return Outcome.ANSWERED, [(port, reply)]
        if frame[:6] == self.own.mac:
            return Outcome.UNANSWERED, []
        outcome, ports = destinations(self.macs, frame[:6], port, sorted(self.linked))
        floods = outcome == Outcome.ORDINARY and self.macs.port(frame[:6]) is None
        if floods and not self.flood_limit.admits(port, bpdu=frame[:6] == BPDU):
            return Outcome.FLOOD_LIMITED, []
        return outcome, [(egress, frame) for egress in ports]

    def serve(self, service: Service, source: Source, payload: bytes, now_us: int) -> list[Datagram]:
        """Hand a request to the replay service, and return its answers."""
        sent = service.receive(source, payload, now_us)
        self.stats[Stat.SATURATED] = service.saturated
        return [Datagram(to, answer) for to, answer in sent]

    def handle_message(self, message: Message, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Handle a contribution, a receipt or a claim."""
        number = message.job
        failed = self.failed_check(message)
        if failed == Outcome.HALTED:  # the message is the member's own, and shows that it lives
            self.jobs[number] = record_activity(self.jobs[number], message.member, now_us)
        if failed in NOTICED:
            return failed, self.send_notice(message, NOTICED[failed], now_us)
        if failed is not None:
            return failed, []
        job = record_activity(self.jobs[number], message.member, now_us)
        if message.type == Type.CLAIM and job.claims:
            outcome, waits_for, sent = self.claim(job, job.claims, message)
        else:
            step = self.update_ring(job, message, now_us)
            self.count_admissions(job, step.ring)
            self.jobs[number] = job._replace(ring=step.ring)
            outcome, waits_for = step.outcome, step.waits_for
            sent = self.report_collective(message, step, now_us)
            sent += self.execute(number, step.work, message.payload) if step.work else []
            sent += self.extra_datagrams(message, step)
        sent += self.evict(number, waits_for, now_us)
        self.admit_at_boundary(number, now_us)
        return outcome, sent

    def failed_check(self, message: Message) -> Outcome | None:
        """Return the outcome of the first check of membership and form that a message fails, or None."""
        return failed_check(self.job(message.job), message)

    def update_ring(self, job: Job, message: Message, now_us: int) -> Step:
        """Return what a contribution or a receipt does to the ring of its job."""
        settings = job.settings
        granted = claims_of.granted_members(job.claims, message.seq) if job.claims else None
        if message.type == Type.RECEIPT:
            return ring.receipt(
                job.ring,
                member=message.member,
                seq=message.seq,
                behind=message.behind,
                want=bool(message.flags & ContributionFlag.WANT),
                granted=granted,
                format=settings.format,
                length=4,
            )
        elements = np.frombuffer(message.payload, lane.patterns(message.format))
        return ring.contribute(
            job.ring,
            member=message.member,
            seq=message.seq,
            behind=message.behind,
            format=message.format,
            length=len(message.payload),
            tainted=lane.is_tainted(message.format, elements, lane.exponent_limit(settings.fraction)),
            boundary=bool(message.flags & ContributionFlag.BOUNDARY) and not job.claims,
            requires_all=bool(message.flags & ContributionFlag.REQUIRES_ALL) or bool(job.claims),
            quarantine=settings.mode == Mode.QUARANTINE,
            now_us=now_us,
            granted=granted or 0 if job.claims else None,
            collective=message.collective,
            digest=message.digest,
        )

    def report_collective(self, message: Message, step: Step, now_us: int) -> list[Datagram]:
        """Return the NOTICE to a sender whose slot has met another collective than the sender's."""
        if step.differs_from is None:
            return []
        return self.send_notice(message, Reason.COLLECTIVE, now_us, collective=step.differs_from)

    def extra_datagrams(self, message: Message, step: Step) -> list[Datagram]:
        """Return what a step makes the switch send besides results."""
        return []

    def claim(self, job: Job, claims: Claims, message: Message) -> tuple[Outcome, int, list[Datagram]]:
        """Return the outcome of a claim, the members that it waits for, and its answer."""
        verdict = claims_of.claim(claims, job.ring, member=message.member, k=message.seq, weights=message.members)
        self.jobs[message.job] = job._replace(claims=verdict.claims)
        if verdict.age is not None:
            self.ages[verdict.age] += 1
        sent = self.answer_claim(message, verdict.answer) if verdict.answer else []
        return verdict.outcome, verdict.waits_for, sent

    def answer_claim(self, message: Message, answer: Answer) -> list[Datagram]:
        """Return a GRANT for its receivers, or a REFUSE for the claimant."""
        job = self.jobs[message.job]
        if answer.type == Type.GRANT:
            payload = compose.grant(
                job=message.job, epoch=job.epoch, base=answer.seq, members=answer.members, token=job.token
            )
            return self.send_to_members(job, answer.receivers, payload)
        payload = compose.refuse(
            job=message.job,
            epoch=job.epoch,
            k=answer.seq,
            member=message.member,
            token=message.token,
            base=answer.members,
        )
        return self.reply(message, payload)

"""Golden model of the whole switch: a frame goes in, frames come out, counters and registers follow.

It has no clocks and no queues, so nothing is ever dropped on the way out. The frames that one received frame causes
come in this order: ordinary copies by port; a reply to the ingress port; results, slot by slot, each by port and on a
port by member, a GRANT like a result. A READ sees all earlier frames and its own `RX_FRAMES`, not its own outcome.

One class, the order of a frame's steps; the rules of each step are in the modules that it calls, without state.
"""

from collections.abc import Sequence

import numpy as np

from iswitch.config import Config
from iswitch.wire import (
    MAGIC,
    NOTICE_INTERVAL_US,
    REGISTERS_PER_READ,
    STALENESS_MAX,
    VERSION,
    Action,
    ContributionFlag,
    Format,
    JobState,
    Mode,
    Operation,
    Outcome,
    PortCounter,
    Reason,
    Register,
    ResultFlag,
    Standing,
    Stat,
    Type,
)
from iswitch.wire.replay import Fate
from sim.model.bridge.forwarder import MacTable, destinations
from sim.model.bridge.responder import answer
from sim.model.decide import claims as claims_of
from sim.model.decide import membership, random, views
from sim.model.decide.claims import Answer, Claims
from sim.model.decide.membership import NO_JOB, EntryState, Job, Source, Verdict
from sim.model.decide.ring import Names, Ring, Slot, Step, Work, contribute, receipt
from sim.model.egress import compose
from sim.model.ingress.parse import ADDRESS_BYTES, FLAT, Message, parse, request
from sim.model.numeric import lane
from sim.model.replay.service import Service

__all__ = ["Frames", "Switch"]

Frames = list[tuple[int, bytes]]

NOTICED = {
    Outcome.JOB: Reason.JOB,
    Outcome.EPOCH: Reason.EPOCH,
    Outcome.MEMBER: Reason.MEMBER,
    Outcome.TOKEN: Reason.TOKEN,
    Outcome.HALTED: Reason.HALTED,
}


class Switch:
    """One switch. `mac`, `ip`: its own addresses. `seed`: where epochs, first seqs and tokens come from."""

    types: tuple[Type, ...] = FLAT
    """The messages that it obeys, beside the replay service's."""

    def __init__(self, config: Config, *, mac: bytes, ip: bytes, seed: int) -> None:
        self.config, self.own = config, compose.Own(mac, ip)
        self.random = random.initial(seed)
        self.jobs: list[Job] = [NO_JOB] * config.jobs
        self.numbers: dict[tuple[int, int], lane.Stored] = {}
        self.outcomes, self.stats = [0] * (max(Outcome) + 1), [0] * len(Stat)
        self.ages = [0] * (STALENESS_MAX + 1)
        self.port_counters = [[0] * len(PortCounter) for _ in range(config.ports)]
        self.noticed_us: int | None = None
        self.macs = MacTable(config.mac_entries)
        self.service = Service(config.replay) if config.replay else None

    def receive(self, port: int, frame: bytes, now_us: int, error: bool = False) -> Frames:
        """One frame without FCS that came in by `port`; `error`: its FCS was bad. Returns (port, frame) in order."""
        seen = self.port_counters[port]
        self.macs.at(now_us)
        if error or len(frame) < 60 or len(frame) > self.config.frame_bytes_max:
            seen[
                PortCounter.RX_ERROR if error else PortCounter.RX_RUNT if len(frame) < 60 else PortCounter.RX_OVERSIZE
            ] += 1
            return []
        seen[PortCounter.RX_FRAMES] += 1
        message = parse(port, frame, self.own.ip, (*self.types, Type.REQUEST) if self.service else self.types)
        if message == Outcome.ORDINARY:
            outcome, sent = self.forward(port, frame)
        elif isinstance(message, Outcome):
            outcome, sent = message, []
        elif message.type == Type.CONTROL:
            outcome, sent = self.control(message, now_us)
        elif self.service and message.type == Type.REQUEST:
            outcome, sent = Outcome.REPLAY, self.replay(self.service, message.source, frame[ADDRESS_BYTES:], now_us)
        else:
            outcome, sent = self.aggregate(message, now_us)
        self.macs.learn(frame[6:12], port, self.own.mac)
        self.outcomes[outcome] += 1
        for egress, _ in sent:
            self.port_counters[egress][PortCounter.TX_FRAMES] += 1
        return sent

    def forward(self, port: int, frame: bytes) -> tuple[Outcome, Frames]:
        """A frame that is not ours. Where it goes is looked up before its sender is learnt."""
        if reply := answer(frame, self.own):
            return Outcome.ANSWERED, [(port, reply)]
        if frame[:6] == self.own.mac:
            return Outcome.UNANSWERED, []
        outcome, ports = destinations(self.macs, frame[:6], port, self.config.ports)
        return outcome, [(egress, frame) for egress in ports]

    def replay(self, service: Service, source: Source, payload: bytes, now_us: int) -> Frames:
        """A request to the replay service."""
        sent = service.receive(source, payload, now_us)
        self.stats[Stat.SATURATED] = service.saturated
        return [(to.port, compose.address(self.own, to, answer)) for to, answer in sent]

    def aggregate(self, message: Message, now_us: int) -> tuple[Outcome, Frames]:
        """A contribution, a receipt or a claim."""
        refused = self.stranger(message)
        if refused == Outcome.HALTED:  # it is the member's own, and shows that it lives
            self.jobs[message.job] = membership.heard(self.jobs[message.job], message.member, now_us)
        if refused in NOTICED:
            return refused, self.notice(message, NOTICED[refused], now_us)
        if refused is not None:
            return refused, []
        job = membership.heard(self.jobs[message.job], message.member, now_us)
        if message.type == Type.CLAIM and job.claims:
            outcome, waits, sent = self.claim(job, job.claims, message)
        else:
            step = self.step(job, message, now_us)
            self.admit(job, step.ring)
            self.jobs[message.job] = job._replace(ring=step.ring)
            outcome, waits = step.outcome, step.waits
            sent = self.perform(message.job, step.work, message.payload) if step.work else []
            sent += self.beside(message, step)
        sent += self.evict(message.job, waits, now_us)
        self.settle(message.job)
        return outcome, sent

    def claim(self, job: Job, claims: Claims, message: Message) -> tuple[Outcome, int, Frames]:
        """The outcome of a claim, whom it waits for, and its answer."""
        verdict = claims_of.claim(claims, job.ring, member=message.member, k=message.seq, weights=message.members)
        self.jobs[message.job] = job._replace(claims=verdict.claims)
        if verdict.age is not None:
            self.ages[verdict.age] += 1
        return verdict.outcome, verdict.waits, self.respond(message, verdict.answer) if verdict.answer else []

    def respond(self, message: Message, answer: Answer) -> Frames:
        """A GRANT to its receivers, or a REFUSE to the claimant."""
        job = self.jobs[message.job]
        if answer.type == Type.GRANT:
            payload = compose.grant(job=message.job, epoch=job.epoch, base=answer.seq, members=answer.members)
            return self.to_members(job, answer.receivers, payload)
        payload = compose.refuse(
            job=message.job,
            epoch=job.epoch,
            k=answer.seq,
            member=message.member,
            token=message.token,
            base=answer.members,
        )
        return [(message.source.port, compose.address(self.own, message.source, payload))]

    def settle(self, number: int) -> None:
        after = membership.settle(self.jobs[number])
        self.admit(self.jobs[number], after.ring)
        self.jobs[number] = after

    def beside(self, message: Message, step: Step) -> Frames:
        """What else a step makes the switch send."""
        return []

    def evict(self, number: int, waits: int, now_us: int) -> Frames:
        """The first of those waited for who has been silent for too long leaves."""
        before = self.jobs[number]
        late = [m for m in range(len(before.entries)) if waits >> m & 1 and membership.silent(before, m, now_us)]
        if not late:
            return []
        self.stats[Stat.EVICTED] += 1
        after, works = membership.part(before, late[0])
        self.jobs[number] = self.closed(number, after, works)
        self.admit(before, after.ring)
        return [frame for work in works for frame in self.perform(number, work)]

    def closed(self, number: int, job: Job, works: Sequence[Work]) -> Job:
        """The job after operations that closed some of its slots."""
        return job

    def admit(self, before: Job, ring: Ring) -> None:
        self.stats[Stat.ADMITTED] += before.state != JobState.FORMING and bool(ring.live & ~before.live)

    def stranger(self, message: Message) -> Outcome | None:
        """The first check of membership and form that fails."""
        job = self.jobs[message.job] if message.job < self.config.jobs else NO_JOB
        if job.state == JobState.NONE:
            return Outcome.JOB
        if message.epoch != job.epoch:
            return Outcome.EPOCH
        if message.member >= len(job.entries) or job.entries[message.member].state != EntryState.LIVE:
            return Outcome.MEMBER
        entry = job.entries[message.member]
        payload_good = not message.payload
        format_good = True
        if message.type == Type.CONTRIBUTION:
            payload_good = (4 <= len(message.payload) <= 4 * job.settings.elements) and not len(message.payload) % 4
            format_good = message.format in (job.settings.format, Format.INT32)
        rules = {
            Outcome.TOKEN: message.token == entry.token,
            Outcome.PORT: message.source.port == entry.source.port,
            Outcome.ADDRESS: message.source[1:] == entry.source[1:],
            Outcome.FORMING: job.state != JobState.FORMING and bool(job.live >> message.member & 1),
            Outcome.TYPE: message.type != Type.CLAIM or job.claims is not None,
            Outcome.HALTED: job.state != JobState.HALTED or message.type != Type.CONTRIBUTION,
            Outcome.FORMAT: format_good,
            Outcome.LENGTH: payload_good,
        }
        return next((outcome for outcome, holds in rules.items() if not holds), None)

    def step(self, job: Job, message: Message, now_us: int) -> Step:
        granted = claims_of.granted(job.claims, message.seq) if job.claims else None
        if message.type == Type.RECEIPT:
            return receipt(
                job.ring,
                member=message.member,
                seq=message.seq,
                behind=message.behind,
                want=bool(message.flags & ContributionFlag.WANT),
                granted=granted,
                format=job.settings.format,
                length=4,
            )
        tainted = lane.is_tainted(message.format, np.frombuffer(message.payload, "<u4"), self.limit(job))
        boundary, requires_all = (
            bool(message.flags & ContributionFlag.BOUNDARY),
            bool(message.flags & ContributionFlag.REQUIRES_ALL),
        )
        if job.claims:
            boundary, requires_all, granted = False, True, granted or 0
        return contribute(
            job.ring,
            member=message.member,
            seq=message.seq,
            behind=message.behind,
            format=message.format,
            length=len(message.payload),
            tainted=tainted,
            boundary=boundary,
            requires_all=requires_all,
            quarantine=job.settings.mode == Mode.QUARANTINE,
            now_us=now_us,
            granted=granted,
        )

    def limit(self, job: Job) -> int:
        return lane.exponent_limit(job.settings.fraction)

    def perform(self, number: int, work: Work, payload: bytes = b"") -> Frames:
        """One operation on the accumulators of a slot, and the copies of the result that it sends."""
        job = self.jobs[number]
        slot = job.ring.slots[work.slot]
        if work.operation == Operation.RESEND:
            self.stats[Stat.RESENT] += 1
            return self.copies(number, slot, work.receivers, ResultFlag.RESENT)
        self.add(number, work, payload)
        self.stats[Stat.RESULTS] += work.emit
        return self.copies(number, slot, work.receivers) if work.emit else []

    def add(self, number: int, work: Work, payload: bytes) -> None:
        """What an operation makes of a slot's accumulators."""
        job = self.jobs[number]
        slot, place = job.ring.slots[work.slot], (number, work.slot)
        include = work.operation == Operation.CONTRIBUTE
        terms = np.frombuffer(payload, "<u4") if include else np.zeros(slot.length // 4, "<u4")
        self.numbers[place], flushed = lane.accumulate(
            slot.format,
            self.numbers.get(place),
            terms,
            fraction=job.settings.fraction,
            limit=self.limit(job),
            include=include,
            first=work.first,
        )
        self.stats[Stat.TERMS_FLUSHED] += flushed
        self.stats[Stat.FORCED] += not include

    def copies(self, number: int, slot: Slot, receivers: int, flags: int = 0) -> Frames:
        """The result in a complete slot, once for each of the members in the set `receivers`."""
        job = self.jobs[number]
        names, numbers = self.content(number, slot)
        flags |= (
            ResultFlag.PARTIAL * names.partial
            | ResultFlag.TAINTED * bool(names.tainted)
            | ResultFlag.MEMBERS_CHANGED * slot.change
        )
        payload = compose.result(
            job=number,
            epoch=job.epoch,
            seq=slot.seq,
            format=slot.format,
            flags=flags,
            members=names.ranks,
            tainted=names.tainted,
            numbers=numbers,
        )
        return self.to_members(job, receivers, payload)

    def to_members(self, job: Job, receivers: int, payload: bytes) -> Frames:
        """One payload to each of the set `receivers`."""
        members = [entry.source for m, entry in enumerate(job.entries) if receivers >> m & 1]
        return [(to.port, compose.address(self.own, to, payload)) for to in sorted(members, key=lambda to: to.port)]

    def content(self, number: int, slot: Slot) -> tuple[Names, np.ndarray]:
        """Who is in a complete slot, and the numbers that leave."""
        place = (number, slot.seq % self.config.slots)
        return (
            Names(slot.members, slot.tainted, bool(slot.expected & ~slot.members)),
            lane.result(slot.format, self.numbers[place], self.jobs[number].settings.fraction),
        )

    def notice(self, message: Message, reason: Reason, now_us: int) -> Frames:
        """At most one in an interval, or a stranger could make the switch a source of traffic."""
        if self.noticed_us is not None and (now_us - self.noticed_us) % 2**32 < NOTICE_INTERVAL_US:
            self.stats[Stat.NOTICES_SUPPRESSED] += 1
            return []
        self.noticed_us = now_us
        self.stats[Stat.NOTICES] += 1
        epoch = self.jobs[message.job].epoch if message.job < self.config.jobs else 0
        payload = compose.notice(
            job=message.job, epoch=epoch, seq=message.seq, member=message.member, token=message.token, reason=reason
        )
        return [(message.source.port, compose.address(self.own, message.source, payload))]

    def control(self, message: Message, now_us: int) -> tuple[Outcome, Frames]:
        asked = request(message)
        verdict = self.decide(message, asked, now_us)
        if message.job < self.config.jobs:
            self.admit(self.jobs[message.job], verdict.job.ring)
            self.jobs[message.job] = verdict.job
        registers = self.registers(asked.address, now_us) if asked.action == Action.READ else [0] * REGISTERS_PER_READ
        job, settings = verdict.job, verdict.job.settings
        payload = compose.ack(
            job=message.job,
            epoch=job.epoch,
            seq=message.seq,
            member=verdict.member,
            token=verdict.token,
            registers=tuple(registers),
            action=asked.action,
            reason=verdict.reason,
            state=job.state,
            window=self.config.window,
            elements=settings.elements or self.config.elements,
            world=settings.world,
            live=job.live.bit_count(),
            nonce=asked.nonce,
            threshold=settings.threshold,
            standing=0 if verdict.own is None else job.standing(verdict.own),
            first_seq=job.first_seq if verdict.own is None else job.begins(verdict.own),
            members=self.config.members,
            address=asked.address,
        )
        sent = [(message.source.port, compose.address(self.own, message.source, payload))]
        for work in verdict.works:
            sent += self.perform(message.job, work)
        if message.job < self.config.jobs:
            # A newcomer's repeated Join says that it waits for a boundary, in an asynchronous job.
            if job.claims and verdict.own is not None and job.standing(verdict.own) == Standing.JOINING:
                sent += self.evict(message.job, claims_of.behind(job.claims, job.ring), now_us)
            self.settle(message.job)
        return Outcome.REFUSED if verdict.reason else Outcome.CONTROL, sent

    def decide(self, message: Message, asked: membership.Request, now_us: int) -> Verdict:
        job = self.jobs[message.job] if message.job < self.config.jobs else NO_JOB
        unchanged = Verdict(job, Reason.DONE, message.member, message.token)
        if asked.action == Action.READ:
            return unchanged
        if asked.action not in tuple(Action):
            return unchanged._replace(reason=Reason.ACTION)
        if message.job >= self.config.jobs:
            return unchanged._replace(reason=Reason.JOB)
        if asked.action != Action.JOIN:
            return membership.act(self.config, job, asked, message.source)
        after, offer = random.offer(self.random, self.config.slots, new_job=job.state == JobState.NONE)
        verdict = membership.join(self.config, job, asked, message.source, offer, now_us, self.below(message.job))
        self.random = after if verdict.fresh else self.random
        return verdict

    def below(self, number: int) -> int:
        """The ranks that join a job here; 0 for all."""
        return 0

    def registers(self, address: int, now_us: int) -> list[int]:
        """`REGISTERS_PER_READ` registers from `address`, as READ returns them."""
        viewed = [
            views.register(self.config, self.jobs, (address + k) % 2**32, now_us) for k in range(REGISTERS_PER_READ)
        ]
        return [
            counted if value is None else value for value, counted in zip(viewed, self.counted(address), strict=True)
        ]

    def counted(self, address: int) -> list[int]:
        """Constants and counters; 0 elsewhere."""
        config = self.config
        known = {
            Register.MAGIC: MAGIC,
            Register.VERSION: VERSION,
            Register.PORTS: config.ports,
            Register.BUS_BITS: config.bus_bits,
            Register.MEMBERS: config.members,
            Register.JOBS: config.jobs,
            Register.WINDOW: config.window,
            Register.ELEMENTS: config.elements,
        }
        values: dict[int, int] = {int(at): value for at, value in known.items()}
        port_counters = [count for port in self.port_counters for count in port]
        for first, counts in (
            (Register.OUTCOMES, self.outcomes),
            (Register.STATS, self.stats),
            (Register.AGES, self.ages),
            (Register.PORT_COUNTERS, port_counters),
        ):
            values |= {first + k: count % 2**32 for k, count in enumerate(counts)}
        if self.service:
            values |= {Register.REPLAY_FATES + k: count % 2**32 for k, count in enumerate(self.service.fates)}
            values |= {Register.REPLAY + k: value for k, value in enumerate(self.service.registers())}
        return [values.get((address + k) % 2**32, 0) for k in range(REGISTERS_PER_READ)]

    def counters(self) -> dict[str, int]:
        """Every counter by name, zeros too: `outcome.ADDED`, `stat.RESULTS`, `port0.RX_ERROR`; `replay.DONE` if there
        is a replay service."""
        counts = {f"outcome.{kind.name}": self.outcomes[kind] for kind in Outcome}
        counts |= {f"stat.{kind.name}": self.stats[kind] for kind in Stat}
        counts |= {f"replay.{fate.name}": self.service.fates[fate] for fate in Fate} if self.service else {}
        return counts | {
            f"port{port}.{kind.name}": count[kind]
            for port, count in enumerate(self.port_counters)
            for kind in PortCounter
        }

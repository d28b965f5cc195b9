"""Golden model of a switch in a tree: a `Switch` whose members may be switches, and which is itself a member of its
parent, or the root.

Per job, `parents` says where the parent is and which ranks join below this switch. A switch without such an entry is
the job's root; so is a switch outside any tree, and one model serves every place.

**Joining.** A Join names in the header's `members` the global ranks that come with it. When all that belong below a
leaf are live, each further Join from there makes the leaf send its own up, with all their ranks: the workers' repeats
carry it through any loss. The root, where all ranks come together, says *running*; on the way down each switch adopts
its parent's epoch and first seq, empties its slots and only then tells its members that the job runs. Before that it
takes no contribution (FORMING).

**Leaving.** The last member's Leave is passed up, and answered (JOB: it has ended) when the parent has answered: nobody
else would repeat it.

One class, for each method is a rule of `Switch` as it reads in a tree.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.wire import (
    ACK,
    NO_MEMBER,
    TAIL_BYTES,
    UDP_PORT,
    UPLINK_TAIL,
    Action,
    ContributionFlag,
    Format,
    JobState,
    Mode,
    Operation,
    Outcome,
    Reason,
    ResultFlag,
    SlotState,
    Type,
)
from iswitch.wire.formats import FORMATS, job_format
from sim.model.decide import random, tree
from sim.model.decide.membership import NO_JOB, Entry, Job, Request, Source, Verdict, live_ranks
from sim.model.decide.ring import Names, Slot, Step, Work, forward, new_ring
from sim.model.egress import compose
from sim.model.ingress.parse import FLAT, Message, request
from sim.model.numeric import lane
from sim.model.switch import Frames, Switch

__all__ = ["Parent", "ParentMembership", "TreeSwitch"]

FROM_ABOVE = (Type.RESULT, Type.NOTICE, Type.ACK)


class Parent(NamedTuple):
    """Where a job's parent is: the port that leads there and its addresses. `ranks`: the global ranks that join below
    this switch."""

    port: int
    mac: bytes
    ip: bytes
    ranks: int

    @property
    def source(self) -> Source:
        return Source(self.port, self.mac, int.from_bytes(self.ip, "big"), UDP_PORT)


class ParentMembership(NamedTuple):
    """What a leaf is to its parent. `running`: the parent has said so. `reason`: why its last Join was refused."""

    nonce: int
    member: int = NO_MEMBER
    token: int = 0
    running: bool = False
    reason: Reason = Reason.DONE


def several(ranks: int) -> bool:
    return bool(ranks & ranks - 1)


class Uplink(NamedTuple):
    """What is behind the header of an uplink. `numbers` as `lane.uplink` made them."""

    numbers: np.ndarray
    flags: int
    tainted: int


def uplink(message: Message) -> Uplink:
    tail = np.frombuffer(message.payload[-UPLINK_TAIL.itemsize :], UPLINK_TAIL, 1)[0]
    numbers = np.frombuffer(message.payload[: -UPLINK_TAIL.itemsize], lane.patterns(message.format))
    return Uplink(numbers, int(tail["flags"]), int(tail["tainted"]))


class TreeSwitch(Switch):
    """One switch of a tree, or a flat one if `config.uplinks` is not set. `parents`: those of the jobs in which it is a
    leaf."""

    types: tuple[Type, ...] = (*FLAT, Type.UPLINK, *FROM_ABOVE)

    def __init__(
        self, config: Config, *, mac: bytes, ip: bytes, seed: int, parents: dict[int, Parent] | None = None
    ) -> None:
        super().__init__(config, mac=mac, ip=ip, seed=seed)
        if not config.uplinks:
            self.types = FLAT
        self.parents = parents or {}
        self.above: dict[int, ParentMembership] = {}

    def aggregate(self, message: Message, now_us: int) -> tuple[Outcome, Frames]:
        """Whatever is no control message."""
        if message.type in FROM_ABOVE:
            refused = self.foreign(message)
            if refused is not None:
                return refused, []
            return {Type.RESULT: self.install, Type.ACK: self.acknowledged, Type.NOTICE: self.noticed}[message.type](
                message
            )
        return super().aggregate(message, now_us)

    # From below

    def stranger(self, message: Message) -> Outcome | None:
        """As a flat switch; and an uplink has numbers and ranks that its sender may send, while who has several ranks
        sends uplinks."""
        if message.type != Type.UPLINK:
            refused = super().stranger(message)
            mixed = not refused and message.type == Type.CONTRIBUTION and several(self.entry(message).ranks)
            return Outcome.TYPE if mixed else refused
        refused = super().stranger(message._replace(type=Type.RECEIPT, payload=b""))
        if refused is not None:
            return refused
        settings = self.jobs[message.job].settings
        if self.jobs[message.job].state == JobState.HALTED:
            return Outcome.HALTED
        if message.format not in (FORMATS[settings.format].uplink, Format.INT32):
            return Outcome.FORMAT
        size, length = FORMATS[message.format].element.itemsize, len(message.payload) - UPLINK_TAIL.itemsize
        if length % size or not 1 <= length // size <= settings.elements:
            return Outcome.LENGTH
        return Outcome.MEMBER if (message.members | uplink(message).tainted) & ~self.entry(message).ranks else None

    def entry(self, message: Message) -> Entry:
        return self.jobs[message.job].entries[message.member]

    def step(self, job: Job, message: Message, now_us: int) -> Step:
        if job.claims:  # of such there are no trees
            return super().step(job, message, now_us)
        leaf = message.job in self.parents
        boundary, requires_all = (
            bool(message.flags & ContributionFlag.BOUNDARY),
            bool(message.flags & ContributionFlag.REQUIRES_ALL),
        )
        if message.type == Type.RECEIPT:
            return self.receipt(message)[0]
        if message.type == Type.UPLINK:
            numbers, flags, tainted = uplink(message)
            return tree.contribute(
                job.ring,
                leaf=leaf,
                member=message.member,
                ranks=message.members,
                seq=message.seq,
                behind=message.behind,
                format=job_format(message.format),
                length=4 * numbers.size,
                boundary=boundary,
                requires_all=requires_all,
                tainted=tainted,
                partial=bool(flags & ResultFlag.PARTIAL),
                uplink=True,
                now_us=now_us,
            )
        rank = self.entry(message).ranks
        tainted = rank * lane.is_tainted(message.format, np.frombuffer(message.payload, "<u4"), self.limit(job))
        quarantined = tainted and job.settings.mode == Mode.QUARANTINE
        return tree.contribute(
            job.ring,
            leaf=leaf,
            member=message.member,
            ranks=0 if quarantined else rank,
            seq=message.seq,
            behind=message.behind,
            format=message.format,
            length=len(message.payload),
            boundary=boundary,
            requires_all=requires_all,
            tainted=tainted,
            now_us=now_us,
        )

    def receipt(self, message: Message) -> tuple[Step, tree.Report | None]:
        return tree.receipt(
            self.jobs[message.job].ring,
            leaf=message.job in self.parents,
            member=message.member,
            seq=message.seq,
            behind=message.behind,
            want=bool(message.flags & ContributionFlag.WANT),
        )

    def beside(self, message: Message, step: Step) -> Frames:
        """A leaf's receipt for one of its members', which the ring knows by now, or for a repeat."""
        if step.work or self.jobs[message.job].claims:
            return []
        asks = step.outcome == Outcome.RECEIPT
        report = self.receipt(message)[1] if asks else tree.sign_of_life(step, leaf=message.job in self.parents)
        if not report:
            return []
        above, job = self.above[message.job], self.jobs[message.job]
        return self.up(
            message.job,
            compose.receipt(
                job=message.job, epoch=job.epoch, member=above.member, token=above.token, **report._asdict()
            ),
        )

    # Sums

    def perform(self, number: int, work: Work, payload: bytes = b"") -> Frames:
        """As a flat switch; what a leaf closes goes up."""
        slot = self.jobs[number].ring.slots[work.slot]
        if work.operation == Operation.SEND_UP:
            return self.send_up(number, slot, again=True)
        if slot.state == SlotState.SENT_UP:
            self.add(number, work, payload)
            return self.send_up(number, slot, again=False)
        return super().perform(number, work, payload)

    def add(self, number: int, work: Work, payload: bytes) -> None:
        """As a flat switch; a leaf keeps an installed result as it is, and an uplink's payload ends with a tail of 8
        bytes."""
        slot, place = self.jobs[number].ring.slots[work.slot], (number, work.slot)
        if work.operation == Operation.INSTALL_DOWN:
            self.numbers[place] = lane.install(np.frombuffer(payload[:-TAIL_BYTES], "<u4"))
        elif work.operation == Operation.CONTRIBUTE and len(payload) > slot.length:
            width = lane.patterns(FORMATS[slot.format].uplink)
            terms = np.frombuffer(payload[: -UPLINK_TAIL.itemsize], width)
            self.numbers[place] = lane.accumulate_uplink(slot.format, self.numbers.get(place), terms, first=work.first)
        else:
            super().add(number, work, payload)

    def content(self, number: int, slot: Slot) -> tuple[Names, np.ndarray]:
        """By rank; at a leaf what was installed."""
        if self.jobs[number].claims:
            return super().content(number, slot)
        index, leaf = slot.seq % self.config.slots, number in self.parents
        names = tree.names(self.jobs[number].ring, index)
        fraction = self.jobs[number].settings.fraction
        numbers = lane.result(Format.INT32 if leaf else slot.format, self.numbers[number, index], fraction)
        return names if leaf else names._replace(partial=names.partial or bool(slot.expected & ~slot.members)), numbers

    def send_up(self, number: int, slot: Slot, *, again: bool) -> Frames:
        """The accumulators of a closed slot, unrounded."""
        job, above, index = self.jobs[number], self.above[number], slot.seq % self.config.slots
        names = tree.names(job.ring, index)
        partial = names.partial or slot.expected & ~slot.members
        return self.up(
            number,
            compose.uplink(
                job=number,
                epoch=job.epoch,
                seq=slot.seq,
                member=above.member,
                token=above.token,
                format=FORMATS[slot.format].uplink,
                flags=ContributionFlag.RETRANSMISSION * again
                | ContributionFlag.BOUNDARY * slot.boundary
                | ContributionFlag.REQUIRES_ALL * slot.requires_all,
                behind=forward(slot.seq, tree.lowest(job.ring)) % 2**16,
                ranks=names.ranks,
                tainted=names.tainted,
                partial=bool(partial),
                numbers=lane.uplink(slot.format, self.numbers[number, index]),
            ),
        )

    def up(self, number: int, payload: bytes) -> Frames:
        to = self.parents[number].source
        return [(to.port, compose.address(self.own, to, payload))]

    # From above

    def foreign(self, message: Message) -> Outcome | None:
        """Why something that comes from parents does not come from this job's."""
        if message.job not in self.parents:
            return Outcome.TYPE
        if message.job not in self.above:
            return Outcome.JOB
        source = self.parents[message.job].source
        if message.source.port != source.port:
            return Outcome.PORT
        return Outcome.ADDRESS if message.source != source else None

    def install(self, message: Message) -> tuple[Outcome, Frames]:
        job, length = self.jobs[message.job], len(message.payload) - TAIL_BYTES
        if not self.above[message.job].running:
            return Outcome.FORMING, []
        if message.epoch != job.epoch:
            return Outcome.EPOCH, []
        if message.format not in (job.settings.format, Format.INT32):
            return Outcome.FORMAT, []
        if length % 4 or not 4 <= length <= 4 * job.settings.elements:
            return Outcome.LENGTH, []
        ranks = (1 << self.config.members) - 1
        step = tree.install(
            job.ring,
            seq=message.seq,
            ranks=message.members & ranks,
            tainted=message.token & ranks,
            partial=bool(message.flags & ResultFlag.PARTIAL),
            format=message.format,
            length=length,
        )
        self.jobs[message.job] = job._replace(ring=step.ring)
        return step.outcome, self.perform(message.job, step.work, message.payload) if step.work else []

    def acknowledged(self, message: Message) -> tuple[Outcome, Frames]:
        """The parent's answer to a Join or a Leave. What a new token says is confirmed at once; if that is lost, the
        members repeat."""
        number, body = message.job, np.frombuffer(message.payload, ACK, 1)[0]
        above, reason = self.above[number], Reason(min(int(body["reason"]), max(Reason)))
        if int(body["nonce"]) != above.nonce:
            return Outcome.TOKEN, []
        if body["action"] == Action.LEAVE:
            self.end(number)
            return Outcome.CONTROL, []
        fresh = message.token != above.token
        if reason != Reason.DONE:
            start_over = ParentMembership(above.nonce, reason=Reason.DONE if reason == Reason.TOKEN else reason)
            self.above[number] = above if above.running else start_over
        elif int(body["window"]) != self.config.window:
            self.above[number] = above._replace(reason=Reason.ELEMENTS)
        elif fresh and not above.running:
            self.above[number] = ParentMembership(above.nonce, message.member, message.token)
            return Outcome.CONTROL, self.ask(number)
        elif not fresh and body["state"] == JobState.RUNNING:
            self.adopt(number, message.epoch, int(body["first_seq"]))
        return Outcome.CONTROL, []

    def adopt(self, number: int, epoch: int, first_seq: int) -> None:
        """The parent's job runs, or was reset. An answer to an earlier Join may come late: epochs only rise, one at a
        Reset."""
        job, above = self.jobs[number], self.above[number]
        if above.running and not 0 < (epoch - job.epoch) % 2**16 < 2**15:
            return
        ring = new_ring(
            first_seq, self.config.window, self.config.members, job.live, job.ring.threshold, job.ring.deadline_us
        )
        self.jobs[number] = job._replace(ring=ring, epoch=epoch, first_seq=first_seq, state=JobState.RUNNING)
        self.above[number] = above._replace(running=True)

    def noticed(self, message: Message) -> tuple[Outcome, Frames]:
        """The parent does not know this epoch: ask for its own. Or not this member: its members must join anew, a
        NOTICE tells each."""
        number, above = message.job, self.above[message.job]
        if message.token != above.token or not above.running:
            return Outcome.TOKEN, []
        if message.reason == Reason.EPOCH:
            return Outcome.CONTROL, self.ask(number) if message.epoch != self.jobs[number].epoch else []
        self.end(number)
        return Outcome.CONTROL, []

    def end(self, number: int) -> None:
        self.jobs[number] = NO_JOB
        del self.above[number]

    # Membership

    def below(self, number: int) -> int:
        return self.parents[number].ranks if number in self.parents else 0

    def control(self, message: Message, now_us: int) -> tuple[Outcome, Frames]:
        number, asked = message.job, request(message)
        if number not in self.parents or asked.action not in (Action.JOIN, Action.LEAVE, Action.RESET):
            return super().control(message, now_us)
        if asked.action == Action.LEAVE and self.leaves_nobody(message, asked, now_us):
            return Outcome.CONTROL, self.ask(number, Action.LEAVE)
        outcome, sent = super().control(message, now_us)
        job = self.jobs[number]
        if job.state == JobState.NONE:
            self.above.pop(number, None)
        elif asked.action == Action.JOIN and not self.above[number].running and self.whole(number, job):
            sent += self.ask(number)
        return outcome, sent

    def leaves_nobody(self, message: Message, asked: Request, now_us: int) -> bool:
        """A good Leave of the last member of a job that the parent knows."""
        job = self.jobs[message.job]
        return bool(
            message.job in self.above
            and self.above[message.job].token
            and job.live == 1 << asked.member
            and self.decide(message, asked, now_us).job.state == JobState.NONE
        )

    def ask(self, number: int, action: Action = Action.JOIN) -> Frames:
        """This leaf's own Join or Leave. The parent tells repeats by the nonce, or by the number (1: a leaf sends no
        other)."""
        job, above = self.jobs[number], self.above[number]
        return self.up(
            number,
            compose.control(
                job=number,
                seq=int(action == Action.LEAVE),
                member=above.member,
                token=above.token,
                ranks=self.parents[number].ranks,
                action=action,
                key=job.key,
                nonce=above.nonce,
                **job.settings._asdict(),
            ),
        )

    def whole(self, number: int, job: Job) -> bool:
        """All ranks that belong below are live."""
        return live_ranks(job) == self.parents[number].ranks

    def closed(self, number: int, job: Job, works: Sequence[Work]) -> Job:
        """What a leaf closes goes up."""
        ring = job.ring
        for work in works:
            ring = tree.close(ring, work, number in self.parents)
        return job._replace(ring=ring)

    def decide(self, message: Message, asked: Request, now_us: int) -> Verdict:
        number, leaf = message.job, message.job in self.parents
        asked = asked._replace(ranks=message.members if self.config.uplinks else 0)
        job = self.jobs[number] if number < self.config.jobs else NO_JOB
        reason = self.impossible(asked, job, leaf)
        if reason != Reason.DONE:
            return Verdict(job, reason, asked.member, asked.token)
        verdict = super().decide(message, asked, now_us)
        if not leaf or verdict.job.state == JobState.NONE:
            return verdict
        if number not in self.above:
            self.random = random.step(self.random)
            self.above[number] = ParentMembership(nonce=self.random)
        above = self.above[number]
        state = JobState.RUNNING if above.running else JobState.FORMING
        if asked.action == Action.JOIN and verdict.reason == Reason.DONE:
            verdict = verdict._replace(reason=above.reason)
        return verdict._replace(job=self.closed(number, verdict.job, verdict.works)._replace(state=state))

    def impossible(self, asked: Request, job: Job, leaf: bool) -> Reason:
        """What a tree forbids: asynchronous jobs, fewer than all in a sum, segments whose uplink fits no frame, Halt,
        and Reset and FBCAST anywhere but at the root."""
        settings = asked.settings
        if asked.action == Action.JOIN and settings.segments and (leaf or asked.ranks):
            return Reason.SEGMENTS
        if asked.action == Action.JOIN and (leaf or several(asked.ranks)):
            if settings.threshold != settings.world:
                return Reason.THRESHOLD
            return Reason.ELEMENTS if settings.elements > self.config.uplink_elements else Reason.DONE
        if asked.action == Action.SET_H and (leaf or job.tree) and settings.threshold != job.settings.world:
            return Reason.THRESHOLD
        elsewhere = (
            asked.action == Action.RESET and asked.member != NO_MEMBER or asked.action == Action.FBCAST
        ) and leaf
        return Reason.ACTION if elsewhere or asked.action == Action.HALT and (leaf or job.tree) else Reason.DONE

"""Golden model of a switch in a tree: its members may be switches, and it may be a member of its parent, or the root.

Per job, `parents` says where the parent is and which ranks join below this switch. A switch without such an entry is
the job's root. So is a switch outside any tree, and one model serves every place. `tree_member.py` says how a switch
joins its parent; here is what it does with sums.
"""

from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.golden.decide import tree
from iswitch.golden.decide.checks import is_payload_length
from iswitch.golden.decide.job import Entry, Job
from iswitch.golden.decide.slot import Contributors, Slot, Step, Work
from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import FLAT
from iswitch.golden.interface.message import Datagram, Message
from iswitch.golden.interface.serial import ahead
from iswitch.golden.numeric import lane
from iswitch.golden.tree_member import Parent, ParentMembership, TreeMember, has_several
from iswitch.wire import (
    TAIL,
    TAIL_BYTES,
    UPLINK_TAIL,
    ContributionFlag,
    Format,
    JobState,
    Mode,
    Operation,
    Outcome,
    ResultFlag,
    SlotState,
    Type,
)
from iswitch.wire.formats import FORMATS, job_format

__all__ = ["Parent", "ParentMembership", "TreeSwitch", "parse_uplink"]

FROM_PARENT = (Type.RESULT, Type.NOTICE, Type.ACK)
"""Messages that come from a parent only."""


class Uplink(NamedTuple):
    """What follows the header of an uplink. `elements` are as `lane.uplink` made them."""

    elements: np.ndarray
    flags: int
    ranks: int
    tainted: int


def parse_uplink(message: Message) -> Uplink:
    """Return what follows the header of an uplink."""
    tail = np.frombuffer(message.payload[-UPLINK_TAIL.itemsize :], UPLINK_TAIL, 1)[0]
    elements = np.frombuffer(message.payload[: -UPLINK_TAIL.itemsize], lane.patterns(message.format))
    return Uplink(elements, int(tail["flags"]), int(tail["ranks"]), int(tail["tainted"]))


class TreeSwitch(TreeMember):
    """One switch of a tree, or a flat one if `config.uplinks` is not set. Parameters as of `TreeMember`."""

    types: tuple[Type, ...] = (*FLAT, Type.UPLINK, *FROM_PARENT)

    def __init__(
        self,
        config: Config,
        *,
        mac: bytes,
        ip: bytes,
        seed: int,
        operator_key: int = 0,
        parents: dict[int, Parent] | None = None,
    ) -> None:
        super().__init__(config, mac=mac, ip=ip, seed=seed, operator_key=operator_key, parents=parents)
        if not config.uplinks:
            self.types = FLAT

    def handle_message(self, message: Message, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Handle any message that is no control message."""
        if message.type not in FROM_PARENT:
            return super().handle_message(message, now_us)
        failed = self.failed_parent_check(message)
        if failed is not None:
            return failed, []
        handlers = {Type.RESULT: self.install, Type.ACK: self.handle_parent_ack, Type.NOTICE: self.handle_parent_notice}
        return handlers[message.type](message)

    # Messages of members

    def failed_check(self, message: Message) -> Outcome | None:
        """Return the outcome of the first check that a message fails, or None.

        As at a flat switch, and: a member with several ranks sends uplinks, whose elements and ranks must be those that
        it may send. A job outside of trees has no uplinks.
        """
        if message.type != Type.UPLINK:
            failed = super().failed_check(message)
            is_mixed = not failed and message.type == Type.CONTRIBUTION and has_several(self.entry(message).ranks)
            return Outcome.TYPE if is_mixed else failed
        failed = super().failed_check(message._replace(type=Type.RECEIPT, payload=b""))
        if failed is not None:
            return failed
        if not (self.jobs[message.job].tree and self.entry(message).sends_uplinks):
            return Outcome.TYPE
        settings = self.jobs[message.job].settings
        if self.jobs[message.job].state == JobState.HALTED:
            return Outcome.HALTED
        if message.format not in (FORMATS[settings.format].uplink, Format.INT32):
            return Outcome.FORMAT
        count, rest = divmod(len(message.payload) - UPLINK_TAIL.itemsize, FORMATS[message.format].element.itemsize)
        format = job_format(message.format, settings.format)
        if rest or not is_payload_length(format, count * FORMATS[format].element.itemsize, settings.elements):
            return Outcome.LENGTH
        uplink = parse_uplink(message)
        ranks = uplink.ranks | uplink.tainted
        return Outcome.MEMBER if ranks & ~self.entry(message).ranks else None

    def entry(self, message: Message) -> Entry:
        """Return the entry of a message's sender."""
        return self.jobs[message.job].entries[message.member]

    def update_ring(self, job: Job, message: Message, now_us: int) -> Step:
        if job.claims:  # asynchronous jobs have no trees
            return super().update_ring(job, message, now_us)
        if message.type == Type.RECEIPT:
            return self.receipt(message)[0]
        if message.type == Type.UPLINK:
            elements, flags, ranks, tainted = parse_uplink(message)
            format: int = job_format(message.format, job.settings.format)
            length = elements.size * FORMATS[Format(format)].element.itemsize
            partial = bool(flags & ResultFlag.PARTIAL)
        else:
            rank, format, length, partial = self.entry(message).ranks, message.format, len(message.payload), False
            limit = lane.exponent_limit(job.settings.fraction)
            elements = np.frombuffer(message.payload, lane.patterns(format))
            tainted = rank * lane.is_tainted(format, elements, limit)
            ranks = 0 if tainted and job.settings.mode == Mode.QUARANTINE else rank
        return tree.contribute(
            job.ring,
            leaf=message.job in self.parents,
            member=message.member,
            ranks=ranks,
            seq=message.seq,
            behind=message.behind,
            format=format,
            length=length,
            boundary=bool(message.flags & ContributionFlag.BOUNDARY),
            requires_all=bool(message.flags & ContributionFlag.REQUIRES_ALL),
            tainted=tainted,
            partial=partial,
            uplink=message.type == Type.UPLINK,
            collective=message.collective,
            digest=message.digest,
            now_us=now_us,
        )

    def receipt(self, message: Message) -> tuple[Step, tree.LeafReceipt | None]:
        """Return what a receipt does to the ring, and the receipt that goes up because of it."""
        return tree.receipt(
            self.jobs[message.job].ring,
            leaf=message.job in self.parents,
            member=message.member,
            seq=message.seq,
            behind=message.behind,
            want=bool(message.flags & ContributionFlag.WANT),
        )

    def extra_datagrams(self, message: Message, step: Step) -> list[Datagram]:
        """Return a leaf's receipt for one of its members', which the ring has recorded by now, or for a duplicate."""
        number, job = message.job, self.jobs[message.job]
        if step.work or job.claims:
            return []
        if step.outcome == Outcome.RECEIPT:
            receipt = self.receipt(message)[1]
        else:
            receipt = tree.keepalive(step, leaf=number in self.parents)
        if not receipt:
            return []
        above = self.above[number]
        return self.send_up(
            number,
            compose.receipt(job=number, epoch=job.epoch, member=above.member, token=above.token, **receipt._asdict()),
        )

    # Sums

    def execute(self, number: int, work: Work, payload: bytes = b"") -> list[Datagram]:
        """Execute an operation as a flat switch does. What a leaf closes goes up."""
        slot = self.jobs[number].ring.slots[work.slot]
        if work.operation == Operation.SEND_UP:
            return self.send_sum_up(number, slot, again=True)
        if slot.state == SlotState.SENT_UP:
            self.accumulate(number, work, payload)
            return self.send_sum_up(number, slot, again=False)
        return super().execute(number, work, payload)

    def result_content(self, number: int, slot: Slot) -> tuple[Contributors, np.ndarray]:
        """Return the contributors by rank and the elements that leave; at a leaf those that were installed."""
        if self.jobs[number].claims:
            return super().result_content(number, slot)
        job, index, leaf = self.jobs[number], slot.seq % self.config.slots, number in self.parents
        contributors = tree.contributors(job.ring, index)
        if leaf:
            elements = self.sums.installed(number, index, slot.format)
        else:
            elements = self.sums.result(number, index, slot.format, job.settings.fraction)
        partial = contributors.partial or not leaf and bool(slot.expected & ~slot.members)
        return contributors._replace(partial=partial), elements

    def send_sum_up(self, number: int, slot: Slot, *, again: bool) -> list[Datagram]:
        """Return the uplink of a closed slot: its accumulators, unrounded."""
        job, above, index = self.jobs[number], self.above[number], slot.seq % self.config.slots
        contributors = tree.contributors(job.ring, index)
        return self.send_up(
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
                behind=ahead(slot.seq, tree.lowest_acknowledged(job.ring)) % 2**16,
                ranks=contributors.ranks,
                tainted=contributors.tainted,
                partial=contributors.partial or bool(slot.expected & ~slot.members),
                elements=self.sums.uplink(number, index, slot.format),
                collective=slot.collective,
                digest=slot.digest,
            ),
        )

    # Messages of the parent

    def failed_parent_check(self, message: Message) -> Outcome | None:
        """Return why a message that only parents send does not come from this job's parent, or None."""
        if message.job not in self.parents:
            return Outcome.TYPE
        if message.job not in self.above:
            return Outcome.JOB
        source = self.parents[message.job].source
        if message.source.port != source.port:
            return Outcome.PORT
        return Outcome.ADDRESS if message.source != source else None

    def install(self, message: Message) -> tuple[Outcome, list[Datagram]]:
        """Install a result of the parent and send it to the members."""
        number, job, length = message.job, self.jobs[message.job], len(message.payload) - TAIL_BYTES
        if job.state == JobState.FORMING:
            return Outcome.FORMING, []
        if message.token != self.above[number].job_token:
            return Outcome.TOKEN, []
        if message.epoch != job.epoch:
            return Outcome.EPOCH, []
        if message.format not in (job.settings.format, Format.INT32):
            return Outcome.FORMAT, []
        if not is_payload_length(message.format, length, job.settings.elements):
            return Outcome.LENGTH, []
        ranks = (1 << self.config.members) - 1
        step = tree.install(
            job.ring,
            seq=message.seq,
            ranks=message.members & ranks,
            tainted=message.tainted & ranks,
            partial=bool(message.flags & ResultFlag.PARTIAL),
            format=message.format,
            length=length,
            identity=int(np.frombuffer(message.payload[-TAIL_BYTES:], TAIL, 1)[0]["identity"]),
        )
        self.jobs[number] = job._replace(ring=step.ring)
        return step.outcome, self.execute(number, step.work, message.payload) if step.work else []

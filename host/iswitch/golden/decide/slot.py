"""The records of one job's ring of slots, and the rules that a test may replace by wrong ones.

A payload does not appear here: the set `members` of a slot *is* the sum, and `Operation`s say what happens to the
elements. Sets of members are bit masks. Serial numbers are modulo 2^32.
"""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.golden.interface.serial import SERIAL, ahead
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Operation, Outcome, SlotState, result_identity

__all__ = [
    "RULES",
    "Contributors",
    "Ring",
    "Rules",
    "Slot",
    "Step",
    "Work",
    "admits",
    "awaited_members",
    "expected_members",
    "is_complete",
    "is_overdue",
    "may_add",
    "may_overwrite",
    "missing_members",
    "repeat_completes",
    "rival_of",
    "same_collective",
    "with_slot",
]


class Slot(NamedTuple):
    """One slot.

    `arrived`: members whose contribution arrived in this lap. `members`: those in the sum. `tainted`: those whose
    contribution held an element that the format rejects. `expected`: members live when the slot opened, less those that
    left. `length`: bytes of a contribution. `boundary`: the segment is the last of a collective. `requires_all`: the
    slot waits for all expected members, whatever threshold and deadline say. `members_changed`: its completion admitted
    joining members. `opened_us`: when it opened. `collective`, `digest`: those of the contribution that opened it, the
    former as 32 bits. `rival`: the collective of a contribution that was refused because it differed; 0 if there was
    none.
    """

    seq: int
    state: int = SlotState.EMPTY
    arrived: int = 0
    members: int = 0
    tainted: int = 0
    expected: int = 0
    format: int = 0
    length: int = 0
    boundary: bool = False
    requires_all: bool = False
    members_changed: bool = False
    opened_us: int = 0
    collective: int = 0
    digest: int = 0
    rival: int = 0

    @property
    def identity(self) -> int:
        """The 16 bits by which its result names the collective."""
        return result_identity(self.collective, self.digest)


class Contributors(NamedTuple):
    """The contributors to a slot's sum by global rank, in a tree, where a member may be a switch. `tree.py` keeps them.

    `partial`: a rank below a member is not in the sum although it was expected.
    """

    ranks: int = 0
    tainted: int = 0
    partial: bool = False


class Ring(NamedTuple):
    """One job's slots, and what it has recorded for each member.

    `acknowledged[m]`: member m holds every result below this seq, as its cumulative acknowledgements say. `joining`:
    members that wait for the next boundary. `admitted`: members that the last boundary admitted; they take part from
    `admitted_seq` on, and the slot of that boundary may have completed before earlier slots were even open.
    `deadline_us`: a slot that has been open for so long waits no longer; 0 if there is no deadline. `contributors`: one
    for each slot, or none outside a tree.
    """

    slots: tuple[Slot, ...]
    acknowledged: tuple[int, ...]
    live: int
    threshold: int
    joining: int = 0
    admitted: int = 0
    admitted_seq: int = 0
    deadline_us: int = 0
    contributors: tuple[Contributors, ...] = ()

    @property
    def window(self) -> int:
        """W: half of the slots."""
        return len(self.slots) // 2


class Work(NamedTuple):
    """An operation on the accumulators of a slot.

    `first`: overwrite instead of add. `emit`: the slot is complete with this operation. Its result goes to the set
    `receivers`, as does that of a RESEND.
    """

    operation: Operation
    slot: int
    first: bool
    emit: bool
    receivers: int


class Step(NamedTuple):
    """What a message does to a ring.

    `waits_for`: members for which the message shows that its sender waits. `differs_from`: the collective of another
    member, which the sender learns by a NOTICE, because the slot has met both collectives.
    """

    ring: Ring
    outcome: Outcome
    work: Work | None = None
    waits_for: int = 0
    differs_from: int | None = None


def missing_members(slot: Slot) -> int:
    """Return the members that a slot still waits for."""
    return slot.expected & ~slot.arrived


def is_complete(slot: Slot, threshold: int, overdue: bool = False) -> bool:
    """Return whether a slot needs no further contribution.

    Nothing is missing; or, unless the slot requires all members, enough are in the sum or the deadline has passed.
    """
    enough = slot.members.bit_count() >= threshold or overdue
    return not missing_members(slot) or (enough and not slot.requires_all)


def is_overdue(ring: Ring, slot: Slot, now_us: int) -> bool:
    """Return whether a slot has been open for the job's deadline."""
    return bool(ring.deadline_us) and (now_us - slot.opened_us) % SERIAL >= ring.deadline_us


def lacking_members(ring: Ring, slot: Slot) -> int:
    """Return the live members that are not known to hold a slot's result."""
    return sum(
        1 << m
        for m, acknowledged in enumerate(ring.acknowledged)
        if ring.live >> m & 1 and ahead(acknowledged, slot.seq) <= 0
    )


def awaited_members(ring: Ring, slot: Slot) -> int:
    """Return the members that must act before a slot can be overwritten."""
    return missing_members(slot) if slot.state == SlotState.COLLECTING else lacking_members(ring, slot)


def may_overwrite(ring: Ring, slot: Slot) -> bool:
    """A slot is reused once no live member can still ask for its result; the result exists nowhere else."""
    return slot.state == SlotState.EMPTY or slot.state == SlotState.COMPLETE and not lacking_members(ring, slot)


def may_add(slot: Slot, bit: int) -> bool:
    """A member is in a sum at most once, and a complete result never changes, so that all receive the same one."""
    return slot.state == SlotState.COLLECTING and not slot.arrived & bit


def same_collective(slot: Slot, collective: int, digest: int) -> bool:
    """Contributions are added only if their collectives and the digests of all earlier results are equal."""
    return (slot.collective, slot.digest) == (collective, digest)


def rival_of(slot: Slot, collective: int) -> int:
    """A slot that still waits remembers a collective that it has refused, so that its members learn of it, too."""
    return collective if slot.state in (SlotState.COLLECTING, SlotState.SENT_UP) else slot.rival


def repeat_completes(slot: Slot, threshold: int, overdue: bool) -> bool:
    """A retransmission completes an open slot that needs no more since SET_H or since its deadline passed.

    The switch has no timers, so only a message can make it look.
    """
    return slot.state == SlotState.COLLECTING and is_complete(slot, threshold, overdue)


def admits(ring: Ring, slot: Slot) -> int:
    """A slot at a boundary admits all joining members when it completes.

    No member has contributed to a later segment yet, so all later slots can wait for the admitted members.
    """
    return ring.joining if slot.boundary else 0


def expected_members(ring: Ring, seq: int) -> int:
    """A slot waits for the members that are live when it opens, except those admitted at a later boundary."""
    return ring.live & ~(ring.admitted if ahead(seq, ring.admitted_seq) < 0 else 0)


class Rules(NamedTuple):
    """The rules of the ring, which the explorers replace by plausible wrong ones."""

    may_overwrite: Callable[[Ring, Slot], bool] = may_overwrite
    may_add: Callable[[Slot, int], bool] = may_add
    repeat_completes: Callable[[Slot, int, bool], bool] = repeat_completes
    admits: Callable[[Ring, Slot], int] = admits
    expected_members: Callable[[Ring, int], int] = expected_members
    same_collective: Callable[[Slot, int, int], bool] = same_collective
    rival_of: Callable[[Slot, int], int] = rival_of


RULES = Rules()


def with_slot(ring: Ring, index: int, slot: Slot) -> Ring:
    """Return the ring with another slot at an index."""
    return ring._replace(slots=replace_at(ring.slots, index, slot))

"""The protocol core: what one job's ring of slots makes of a contribution, a receipt or a departure.

Pure functions on small tuples. The golden model of the switch (`sim/model/switch.py`) and the exhaustive explorer
(`sim/model/explorer.py`) call the same functions, so what was explored is what the gateware is compared with.
A payload does not appear here: the set `members` of a slot *is* the sum, `Operation`s say what happens to the numbers.

Serial numbers are modulo 2^32 and compared as in RFC 1982. Sets of workers are bit masks.
"""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.wire import Operation, Outcome, SlotState

__all__ = ["RULES", "Names", "Ring", "Rules", "Slot", "Step", "Work", "complete", "contribute", "forward", "leave", "new_ring",
           "receipt"]

SERIAL = 1 << 32
HALF = 1 << 31


def forward(newer: int, older: int) -> int:
    """How far `newer` is ahead of `older`, in [-2^31, 2^31)."""
    return (newer - older + HALF) % SERIAL - HALF


class Slot(NamedTuple):
    """One slot. `arrived`: heard from in this lap. `members`: in the sum. `expected`: still waited for at the opening,
    less those who left. `length` in bytes."""

    seq: int
    state: int = SlotState.EMPTY
    arrived: int = 0
    members: int = 0
    tainted: int = 0
    expected: int = 0
    format: int = 0
    length: int = 0


class Names(NamedTuple):
    """Who is in a slot's sum all over a tree, where a member may be a switch: masks of global ranks; `partial`: somebody below a
    member is not in though waited for. `tree.py` keeps them."""

    ranks: int = 0
    tainted: int = 0
    partial: bool = False


class Ring(NamedTuple):
    """One job's slots and what is known of each member: `have[m]` is the lowest seq whose result m may lack. `names`: one for each slot,
    or none."""

    slots: tuple[Slot, ...]
    have: tuple[int, ...]
    live: int
    threshold: int
    names: tuple[Names, ...] = ()

    @property
    def window(self) -> int:
        return len(self.slots) // 2


class Work(NamedTuple):
    """An operation for the accumulators. `first`: overwrite instead of add. `emit`: the slot is complete with this one;
    send the result to all live members. A RESEND goes to `member` alone."""

    operation: Operation
    slot: int
    first: bool
    emit: bool
    member: int


class Step(NamedTuple):
    ring: Ring
    outcome: Outcome
    work: Work | None = None


def complete(slot: Slot, threshold: int) -> bool:
    """Enough workers are in the sum, or nobody is left to wait for."""
    return slot.members.bit_count() >= threshold or not slot.expected & ~slot.arrived


def may_overwrite(ring: Ring, slot: Slot) -> bool:
    """Nobody alive can still ask for this slot's result."""
    if slot.state == SlotState.EMPTY:
        return True
    held = all(forward(have, slot.seq) > 0 for m, have in enumerate(ring.have) if ring.live >> m & 1)
    return slot.state == SlotState.COMPLETE and held


def may_add(slot: Slot, bit: int) -> bool:
    """A worker is in a sum at most once, and a complete result never changes."""
    return slot.state == SlotState.COLLECTING and not slot.arrived & bit


def repeat_completes(slot: Slot, threshold: int) -> bool:
    """SET_H made enough of what an open slot already has: whoever asks again ends it."""
    return slot.state == SlotState.COLLECTING and complete(slot, threshold)


class Rules(NamedTuple):
    """The rules the explorer replaces by plausible wrong ones."""

    may_overwrite: Callable[[Ring, Slot], bool] = may_overwrite
    may_add: Callable[[Slot, int], bool] = may_add
    repeat_completes: Callable[[Slot, int], bool] = repeat_completes


RULES = Rules()


def new_ring(first_seq: int, window: int, members: int, live: int, threshold: int) -> Ring:
    """Empty slots on the lap before `first_seq`, which is a multiple of `2 * window`."""
    slots = tuple(Slot(seq=(first_seq + k - 2 * window) % SERIAL) for k in range(2 * window))
    return Ring(slots, (first_seq,) * members, live, threshold)


def acknowledge(ring: Ring, member: int, seq: int, behind: int) -> Ring | None:
    """The sender lacks nothing below `seq - behind`. None: farther than the ring allows anyone to be."""
    ahead = forward(seq - behind, ring.have[member])
    if ahead > len(ring.slots):
        return None
    if ahead <= 0:
        return ring
    have = (seq - behind) % SERIAL
    return ring._replace(have=ring.have[:member] + (have,) + ring.have[member + 1:])


def put(ring: Ring, index: int, slot: Slot) -> Ring:
    return ring._replace(slots=ring.slots[:index] + (slot,) + ring.slots[index + 1:])


def contribute(ring: Ring, *, member: int, seq: int, behind: int, format: int = 0, length: int = 0,
               tainted: bool = False, quarantine: bool = True, reach: int = 0, rules: Rules = RULES) -> Step:
    """One contribution that passed the checks of membership and form. `behind` is less than `reach`, or than W if that is 0."""
    index = seq % len(ring.slots)
    slot, bit = ring.slots[index], 1 << member
    ahead = forward(seq, slot.seq)
    known = acknowledge(ring, member, seq, behind)
    if behind >= (reach or ring.window) or known is None or ahead > len(ring.slots):
        return Step(ring, Outcome.WINDOW)
    ring = known
    if ahead < 0:
        return Step(ring, Outcome.STALE)
    if ahead > 0:
        if not rules.may_overwrite(ring, slot):
            return Step(ring, Outcome.SLOT_HELD)
        slot = Slot(seq, SlotState.COLLECTING, expected=ring.live, format=format, length=length)
    elif slot.state == SlotState.EMPTY:
        return Step(ring, Outcome.STALE)
    if format != slot.format:
        return Step(ring, Outcome.FORMAT)
    if length != slot.length:
        return Step(ring, Outcome.LENGTH)
    if not rules.may_add(slot, bit):
        if rules.repeat_completes(slot, ring.threshold):
            work = Work(Operation.FORCE, index, not slot.members, True, member)
            return Step(put(ring, index, slot._replace(state=SlotState.COMPLETE)), Outcome.DUPLICATE, work)
        again = Work(Operation.RESEND, index, False, False, member) if slot.state == SlotState.COMPLETE else None
        return Step(ring, Outcome.DUPLICATE if slot.arrived & bit else Outcome.LATE, again)

    included = not (tainted and quarantine)
    first = not slot.members
    slot = slot._replace(arrived=slot.arrived | bit, members=slot.members | bit * included,
                         tainted=slot.tainted | bit * tainted)
    emit = complete(slot, ring.threshold)
    slot = slot._replace(state=SlotState.COMPLETE if emit else slot.state)
    ring = put(ring, index, slot)
    if included:
        return Step(ring, Outcome.ADDED, Work(Operation.CONTRIBUTE, index, first, emit, member))
    return Step(ring, Outcome.QUARANTINED, Work(Operation.FORCE, index, first, True, member) if emit else None)


def receipt(ring: Ring, *, member: int, seq: int, behind: int, want: bool) -> Step:
    """The sender lacks nothing below `seq - behind`, and with `want` asks for the result of `seq`."""
    known = acknowledge(ring, member, seq, behind)
    if behind > ring.window or known is None:
        return Step(ring, Outcome.WINDOW)
    index = seq % len(ring.slots)
    slot = ring.slots[index]
    if want and slot.seq == seq and slot.state == SlotState.COMPLETE:
        return Step(known, Outcome.RECEIPT, Work(Operation.RESEND, index, False, False, member))
    return Step(known, Outcome.RECEIPT)


def leave(ring: Ring, member: int) -> tuple[Ring, list[Work]]:
    """The member is waited for no longer, at once; what it contributed stays in and stays named."""
    bit = 1 << member
    ring = ring._replace(live=ring.live & ~bit)
    works = []
    for index, slot in enumerate(ring.slots):
        if slot.state != SlotState.COLLECTING:
            continue
        slot = slot._replace(expected=slot.expected & ~bit)
        if complete(slot, ring.threshold):
            works.append(Work(Operation.FORCE, index, not slot.members, True, member))
            slot = slot._replace(state=SlotState.COMPLETE)
        ring = put(ring, index, slot)
    return ring, works

"""The protocol core: what one job's ring of slots makes of a contribution, a receipt or a departure.

Pure functions on small tuples. The golden model of the switch (`sim/model/switch.py`) and the exhaustive explorer
(`sim/explore/ring.py`) call the same functions, so what was explored is what the gateware is compared with.
A payload does not appear here: the set `members` of a slot *is* the sum, `Operation`s say what happens to the numbers.

Serial numbers are modulo 2^32 and compared as in RFC 1982. Sets of workers are bit masks.
"""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.wire import Operation, Outcome, SlotState

__all__ = [
    "RULES",
    "SERIAL",
    "Names",
    "Ring",
    "Rules",
    "Slot",
    "Step",
    "Work",
    "complete",
    "contribute",
    "force",
    "forward",
    "leave",
    "new_ring",
    "put",
    "receipt",
]

SERIAL = 1 << 32
HALF = 1 << 31


def forward(newer: int, older: int) -> int:
    """How far `newer` is ahead of `older`, in [-2^31, 2^31)."""
    return (newer - older + HALF) % SERIAL - HALF


class Slot(NamedTuple):
    """One slot. `arrived`: heard from in this lap. `members`: in the sum. `expected`: still waited for at the opening,
    less those who left. `length` in bytes. `boundary`: the last segment of a collective. `requires_all`: waits for everybody
    expected, whatever threshold and deadline say. `change`: newcomers were let in when it completed. `opened_us`: the
    time of its opening."""

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
    change: bool = False
    opened_us: int = 0


class Names(NamedTuple):
    """Who is in a slot's sum all over a tree, where a member may be a switch: masks of global ranks; `partial`:
    somebody below a member is not in though waited for. `tree.py` keeps them."""

    ranks: int = 0
    tainted: int = 0
    partial: bool = False


class Ring(NamedTuple):
    """One job's slots and what is known of each member: `have[m]` is the lowest seq whose result m may lack. `joining`:
    who waits for the next boundary. `admitted`: who was let in at the last one, with `admitted_seq` for a first seq; its slot
    may have completed while slots before it were not even open. `deadline_us`: a slot open for so long waits no longer;
    0: there is none. `names`: one for each slot, or none."""

    slots: tuple[Slot, ...]
    acknowledged: tuple[int, ...]
    live: int
    threshold: int
    joining: int = 0
    admitted: int = 0
    admitted_seq: int = 0
    deadline_us: int = 0
    names: tuple[Names, ...] = ()

    @property
    def window(self) -> int:
        return len(self.slots) // 2


class Work(NamedTuple):
    """An operation for the accumulators. `first`: overwrite instead of add. `emit`: the slot is complete with this one;
    its result goes to the set `receivers`, as does that of a RESEND."""

    operation: Operation
    slot: int
    first: bool
    emit: bool
    receivers: int


class Step(NamedTuple):
    """`waits`: whom the sender has been waiting for, if this message shows that it has."""

    ring: Ring
    outcome: Outcome
    work: Work | None = None
    waits: int = 0


def complete(slot: Slot, threshold: int, overdue: bool = False) -> bool:
    """Nobody is left to wait for; or enough workers are in the sum, or it has been open for too long, unless it waits
    for all."""
    enough = slot.members.bit_count() >= threshold or overdue
    return not slot.expected & ~slot.arrived or (enough and not slot.requires_all)


def is_overdue(ring: Ring, slot: Slot, now_us: int) -> bool:
    return bool(ring.deadline_us) and (now_us - slot.opened_us) % SERIAL >= ring.deadline_us


def lacking(ring: Ring, slot: Slot) -> int:
    """The live members who are not known to hold this slot's result."""
    return sum(
        1 << m
        for m, acknowledged in enumerate(ring.acknowledged)
        if ring.live >> m & 1 and forward(acknowledged, slot.seq) <= 0
    )


def holders(ring: Ring, slot: Slot) -> int:
    """For whom a slot waits before it can be overwritten."""
    return slot.expected & ~slot.arrived if slot.state == SlotState.COLLECTING else lacking(ring, slot)


def may_overwrite(ring: Ring, slot: Slot) -> bool:
    """Nobody alive can still ask for this slot's result."""
    return slot.state == SlotState.EMPTY or slot.state == SlotState.COMPLETE and not lacking(ring, slot)


def may_add(slot: Slot, bit: int) -> bool:
    """A worker is in a sum at most once, and a complete result never changes."""
    return slot.state == SlotState.COLLECTING and not slot.arrived & bit


def repeat_completes(slot: Slot, threshold: int, overdue: bool) -> bool:
    """SET_H made enough of what an open slot already has, or its time is over: whoever asks again ends it."""
    return slot.state == SlotState.COLLECTING and complete(slot, threshold, overdue)


def admitted(ring: Ring, slot: Slot) -> int:
    """Who joins with the completion of this slot: nobody has sent anything for later ones, so all of these can wait for
    the newcomers."""
    return ring.joining if slot.boundary else 0


def expected(ring: Ring, seq: int) -> int:
    """Whom a slot waits for that opens for `seq`."""
    return ring.live & ~(ring.admitted if forward(seq, ring.admitted_seq) < 0 else 0)


class Rules(NamedTuple):
    """The rules the explorer replaces by plausible wrong ones."""

    may_overwrite: Callable[[Ring, Slot], bool] = may_overwrite
    may_add: Callable[[Slot, int], bool] = may_add
    repeat_completes: Callable[[Slot, int, bool], bool] = repeat_completes
    admitted: Callable[[Ring, Slot], int] = admitted
    expected: Callable[[Ring, int], int] = expected


RULES = Rules()


def new_ring(first_seq: int, window: int, members: int, live: int, threshold: int, deadline_us: int = 0) -> Ring:
    """Empty slots on the lap before `first_seq`, which is a multiple of `2 * window`."""
    slots = tuple(Slot(seq=(first_seq + k - 2 * window) % SERIAL) for k in range(2 * window))
    return Ring(slots, (first_seq,) * members, live, threshold, deadline_us=deadline_us)


def acknowledge(ring: Ring, member: int, seq: int, behind: int) -> Ring | None:
    """The sender lacks nothing below `seq - behind`. None: farther than the ring allows anyone to be."""
    ahead = forward(seq - behind, ring.acknowledged[member])
    if ahead > len(ring.slots):
        return None
    if ahead <= 0:
        return ring
    acknowledged = (seq - behind) % SERIAL
    return ring._replace(acknowledged=ring.acknowledged[:member] + (acknowledged,) + ring.acknowledged[member + 1 :])


def put(ring: Ring, index: int, slot: Slot) -> Ring:
    return ring._replace(slots=ring.slots[:index] + (slot,) + ring.slots[index + 1 :])


def finish(ring: Ring, index: int, slot: Slot, rules: Rules) -> Ring:
    """The slot is complete; at a boundary those who wait to join are live from the next seq on."""
    new = rules.admitted(ring, slot)
    if slot.boundary or new:
        start = (slot.seq + 1) % SERIAL
        acknowledged = tuple(start if new >> m & 1 else known for m, known in enumerate(ring.acknowledged))
        ring = ring._replace(
            live=ring.live | new,
            joining=ring.joining & ~new,
            admitted=new,
            admitted_seq=start,
            acknowledged=acknowledged,
        )
    return put(ring, index, slot._replace(state=SlotState.COMPLETE, change=bool(new)))


def force(ring: Ring, index: int, rules: Rules = RULES) -> tuple[Ring, Work]:
    """A collecting slot completes with what it has."""
    slot = ring.slots[index]
    ring = finish(ring, index, slot, rules)
    return ring, Work(Operation.FORCE, index, not slot.members, True, ring.live)


def contribute(
    ring: Ring,
    *,
    member: int,
    seq: int,
    behind: int,
    format: int = 0,
    length: int = 0,
    boundary: bool = False,
    requires_all: bool = False,
    tainted: bool = False,
    quarantine: bool = True,
    now_us: int = 0,
    granted: int | None = None,
    reach: int = 0,
    rules: Rules = RULES,
) -> Step:
    """One contribution that passed the checks of membership and form. `granted`: in an asynchronous job, where all are
    `requires_all`, the live members to whom `seq` is granted; otherwise all are expected. `behind` is less than `reach`, or
    than W if that is 0."""
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
            return Step(ring, Outcome.SLOT_HELD, waits=holders(ring, slot))
        slot = Slot(
            seq,
            SlotState.COLLECTING,
            expected=rules.expected(ring, seq) if granted is None else granted,
            format=format,
            length=length,
            boundary=boundary,
            requires_all=requires_all,
            opened_us=now_us,
        )
    elif slot.state == SlotState.EMPTY:
        return Step(ring, Outcome.STALE)
    if granted is not None and slot.state == SlotState.COLLECTING and not slot.expected & bit:
        return Step(ring, Outcome.WINDOW)
    if (format, boundary, requires_all) != (slot.format, slot.boundary, slot.requires_all):
        return Step(ring, Outcome.FORMAT)
    if length != slot.length:
        return Step(ring, Outcome.LENGTH)
    overdue = is_overdue(ring, slot, now_us)
    if not rules.may_add(slot, bit):
        outcome = Outcome.DUPLICATE if slot.arrived & bit else Outcome.LATE
        if rules.repeat_completes(slot, ring.threshold, overdue):
            ring, work = force(ring, index, rules)
            return Step(ring, outcome, work)
        if slot.state == SlotState.COMPLETE:
            return Step(ring, outcome, Work(Operation.RESEND, index, False, False, bit))
        return Step(ring, outcome, waits=slot.expected & ~slot.arrived)

    included = not (tainted and quarantine)
    first = not slot.members
    slot = slot._replace(
        arrived=slot.arrived | bit, members=slot.members | bit * included, tainted=slot.tainted | bit * tainted
    )
    emit = complete(slot, ring.threshold, overdue)
    ring = finish(ring, index, slot, rules) if emit else put(ring, index, slot)
    if included:
        return Step(ring, Outcome.ADDED, Work(Operation.CONTRIBUTE, index, first, emit, ring.live))
    return Step(ring, Outcome.QUARANTINED, Work(Operation.FORCE, index, first, True, ring.live) if emit else None)


def receipt(
    ring: Ring,
    *,
    member: int,
    seq: int,
    behind: int,
    want: bool,
    granted: int | None = None,
    format: int = 0,
    length: int = 0,
    rules: Rules = RULES,
) -> Step:
    """The sender lacks nothing below `seq - behind`, and with `want` asks for the result of `seq`. `granted`: in an
    asynchronous job, the live members to whom `seq` is granted, if it is. If all have left its result is `length` bytes
    of zeros in `format`."""
    known = acknowledge(ring, member, seq, behind)
    if behind > ring.window or known is None:
        return Step(ring, Outcome.WINDOW)
    index = seq % len(ring.slots)
    slot = ring.slots[index]
    if want and slot.seq == seq and slot.state == SlotState.COMPLETE:
        return Step(known, Outcome.RECEIPT, Work(Operation.RESEND, index, False, False, 1 << member))
    if want and granted is not None and forward(seq, slot.seq) == len(ring.slots):
        if not rules.may_overwrite(known, slot):
            return Step(known, Outcome.RECEIPT, waits=holders(known, slot))
        if granted:
            return Step(known, Outcome.RECEIPT, waits=granted)
        empty = Slot(seq, SlotState.COLLECTING, format=format, length=length, requires_all=True)
        known, work = force(put(known, index, empty), index, rules)
        return Step(known, Outcome.RECEIPT, work)
    waits = slot.expected & ~slot.arrived if want and slot.seq == seq and slot.state == SlotState.COLLECTING else 0
    return Step(known, Outcome.RECEIPT, waits=waits)


def leave(ring: Ring, member: int, rules: Rules = RULES) -> tuple[Ring, list[Work]]:
    """The member is waited for no longer, at once; what it contributed stays in and stays named. Eviction is the same.
    If only newcomers remain, who have nothing of what the others knew, the ring is at its end: nobody is live."""
    bit = 1 << member
    ring = ring._replace(live=ring.live & ~bit, joining=ring.joining & ~bit)
    works: list[Work] = []
    if not ring.live & ~ring.admitted:
        return ring._replace(live=0, joining=0), works
    for index, slot in enumerate(ring.slots):
        if slot.state != SlotState.COLLECTING:
            continue
        slot = slot._replace(expected=slot.expected & ~bit)
        ring = put(ring, index, slot)
        if complete(slot, ring.threshold):
            ring, work = force(ring, index, rules)
            works.append(work)
    return ring, works

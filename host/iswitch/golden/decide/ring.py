"""The protocol core: what one job's ring of slots does with a contribution, a receipt or a departure.

Pure functions on small tuples (`slot.py`). The golden model of the switch (`switch.py`) and the exhaustive explorer
(`sim/explore/ring.py`) call the same functions, so what was explored is what the gateware is compared with.
"""

from iswitch.golden.decide.slot import (
    RULES,
    Ring,
    Rules,
    Slot,
    Step,
    Work,
    awaited_members,
    is_complete,
    is_overdue,
    missing_members,
    with_slot,
)
from iswitch.golden.interface.serial import SERIAL, ahead
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Operation, Outcome, SlotState

__all__ = ["acknowledge", "contribute", "force", "leave", "new_ring", "receipt"]


def new_ring(first_seq: int, window: int, members: int, live: int, threshold: int, deadline_us: int = 0) -> Ring:
    """Return a ring of empty slots on the lap before `first_seq`, which is a multiple of `2 * window`."""
    slots = tuple(Slot(seq=(first_seq + k - 2 * window) % SERIAL) for k in range(2 * window))
    return Ring(slots, (first_seq,) * members, live, threshold, deadline_us=deadline_us)


def acknowledge(ring: Ring, member: int, seq: int, behind: int) -> Ring | None:
    """Record that a member holds every result below `seq - behind`.

    Return None if that is farther ahead than the ring allows any member to be. An older acknowledgement changes
    nothing, because acknowledgements are cumulative and may arrive late.
    """
    progress = ahead(seq - behind, ring.acknowledged[member])
    if progress > len(ring.slots):
        return None
    if progress <= 0:
        return ring
    return ring._replace(acknowledged=replace_at(ring.acknowledged, member, (seq - behind) % SERIAL))


def complete(ring: Ring, index: int, slot: Slot, rules: Rules) -> Ring:
    """Complete a slot. At a boundary the joining members become live from the next seq on."""
    admitted = rules.admits(ring, slot)
    if slot.boundary or admitted:
        start = (slot.seq + 1) % SERIAL
        ring = ring._replace(
            live=ring.live | admitted,
            joining=ring.joining & ~admitted,
            admitted=admitted,
            admitted_seq=start,
            acknowledged=tuple(start if admitted >> m & 1 else known for m, known in enumerate(ring.acknowledged)),
        )
    return with_slot(ring, index, slot._replace(state=SlotState.COMPLETE, members_changed=bool(admitted)))


def force(ring: Ring, index: int, rules: Rules = RULES) -> tuple[Ring, Work]:
    """Complete a collecting slot with what it has."""
    slot = ring.slots[index]
    ring = complete(ring, index, slot, rules)
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
    behind_limit: int = 0,
    collective: int = 0,
    digest: int = 0,
    rules: Rules = RULES,
) -> Step:
    """Handle a contribution that passed the checks of membership and form.

    Invariant: a contribution of the slot's own lap is added once; one of the next lap opens the slot if the old result
    is no longer needed; any other changes nothing. A slot sends its result when it is complete, and a retransmission
    to a complete slot is answered with it, because nothing else heals a lost result. A contribution of another
    collective than the slot's is neither added nor answered with a result; the senders of both are told.

    Parameters
    ----------
    granted : int, optional
        In an asynchronous job, where every segment requires all: the live members to which `seq` is granted. By
        default all live members are expected.
    behind_limit : int
        `behind` must be less than this; 0 stands for W.
    collective : int
        The 32 bits of the contribution's `Collective`.
    digest : int
        Digest of the results that the sender has applied.
    """
    index = seq % len(ring.slots)
    slot, bit = ring.slots[index], 1 << member
    distance = ahead(seq, slot.seq)
    acknowledged = acknowledge(ring, member, seq, behind)
    if behind >= (behind_limit or ring.window) or acknowledged is None or distance > len(ring.slots):
        return Step(ring, Outcome.WINDOW)
    ring = acknowledged
    if distance < 0:
        return Step(ring, Outcome.STALE)
    if distance > 0:
        if not rules.may_overwrite(ring, slot):
            return Step(ring, Outcome.SLOT_HELD, waits_for=awaited_members(ring, slot))
        slot = Slot(
            seq,
            SlotState.COLLECTING,
            expected=rules.expected_members(ring, seq) if granted is None else granted,
            format=format,
            length=length,
            boundary=boundary,
            requires_all=requires_all,
            opened_us=now_us,
            collective=collective,
            digest=digest,
        )
    elif slot.state == SlotState.EMPTY:
        return Step(ring, Outcome.STALE)
    if granted is not None and slot.state == SlotState.COLLECTING and not slot.expected & bit:
        return Step(ring, Outcome.WINDOW)
    if not rules.same_collective(slot, collective, digest):
        ring = with_slot(ring, index, slot._replace(rival=rules.rival_of(slot, collective)))
        return Step(ring, Outcome.COLLECTIVE, differs_from=slot.collective)
    if (format, boundary, requires_all) != (slot.format, slot.boundary, slot.requires_all):
        return Step(ring, Outcome.FORMAT)
    if length != slot.length:
        return Step(ring, Outcome.LENGTH)
    overdue = is_overdue(ring, slot, now_us)
    if not rules.may_add(slot, bit):
        return repeat(ring, index, slot, bit, overdue, rules)
    return add(ring, index, slot, bit, tainted, quarantine, overdue, rules)


def repeat(ring: Ring, index: int, slot: Slot, bit: int, overdue: bool, rules: Rules) -> Step:
    """Handle a contribution that is in the slot already, or comes after its completion."""
    outcome = Outcome.DUPLICATE if slot.arrived & bit else Outcome.LATE
    if rules.repeat_completes(slot, ring.threshold, overdue):
        ring, work = force(ring, index, rules)
        return Step(ring, outcome, work)
    if slot.state == SlotState.COMPLETE:
        return Step(ring, outcome, Work(Operation.RESEND, index, False, False, bit))
    return Step(ring, outcome, waits_for=missing_members(slot), differs_from=slot.rival or None)


def add(
    ring: Ring, index: int, slot: Slot, bit: int, tainted: bool, quarantine: bool, overdue: bool, rules: Rules
) -> Step:
    """Add a contribution to its slot. A quarantined one has arrived but is not in the sum."""
    included = not (tainted and quarantine)
    first = not slot.members
    slot = slot._replace(
        arrived=slot.arrived | bit, members=slot.members | bit * included, tainted=slot.tainted | bit * tainted
    )
    emit = is_complete(slot, ring.threshold, overdue)
    ring = complete(ring, index, slot, rules) if emit else with_slot(ring, index, slot)
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
    """Handle a receipt: its sender holds every result below `seq - behind`, and with `want` requests that of `seq`.

    Parameters
    ----------
    granted : int, optional
        In an asynchronous job: the live members to which `seq` is granted, if it is. If all of them have left, the
        result is `length` bytes of zeros in `format`, because no contribution will ever open the slot.
    """
    acknowledged = acknowledge(ring, member, seq, behind)
    if behind > ring.window or acknowledged is None:
        return Step(ring, Outcome.WINDOW)
    ring = acknowledged
    index = seq % len(ring.slots)
    slot = ring.slots[index]
    if not want:
        return Step(ring, Outcome.RECEIPT)
    if slot.seq == seq and slot.state == SlotState.COMPLETE:
        return Step(ring, Outcome.RECEIPT, Work(Operation.RESEND, index, False, False, 1 << member))
    if granted is not None and ahead(seq, slot.seq) == len(ring.slots):
        if not rules.may_overwrite(ring, slot):
            return Step(ring, Outcome.RECEIPT, waits_for=awaited_members(ring, slot))
        if granted:
            return Step(ring, Outcome.RECEIPT, waits_for=granted)
        empty = Slot(seq, SlotState.COLLECTING, format=format, length=length, requires_all=True)
        ring, work = force(with_slot(ring, index, empty), index, rules)
        return Step(ring, Outcome.RECEIPT, work)
    is_collecting = slot.seq == seq and slot.state == SlotState.COLLECTING
    return Step(ring, Outcome.RECEIPT, waits_for=missing_members(slot) if is_collecting else 0)


def leave(ring: Ring, member: int, rules: Rules = RULES) -> tuple[Ring, list[Work]]:
    """Remove a member, which left or was evicted. Slots that waited for it alone complete.

    What it contributed stays in the sums, under its name. If only members remain that the last boundary admitted, no
    member is live any more: they hold nothing of the job's state, so the job cannot go on.
    """
    bit = 1 << member
    ring = ring._replace(live=ring.live & ~bit, joining=ring.joining & ~bit)
    works: list[Work] = []
    if not ring.live & ~ring.admitted:
        return ring._replace(live=0, joining=0), works
    for index, slot in enumerate(ring.slots):
        if slot.state != SlotState.COLLECTING:
            continue
        slot = slot._replace(expected=slot.expected & ~bit)
        ring = with_slot(ring, index, slot)
        if is_complete(slot, ring.threshold):
            ring, work = force(ring, index, rules)
            works.append(work)
    return ring, works

"""The ring in a tree of switches: a slot that has a parent, or members that are switches.

Pure functions around those of `ring.py`, for every switch of a tree. A *leaf* here is any switch with a parent, whose
member it is; the *root* has none. All of them have the same window, epoch and first seq. A leaf's slot goes through

    EMPTY -> COLLECTING -> SENT_UP -> COMPLETE

- It closes when no member below is missing. The leaf then sends its accumulators up unrounded and never changes them
  again; neither departures nor late contributions open the slot.
- It is SENT_UP until the parent's result is installed in it. Meanwhile any retransmission from below makes the leaf
  send up again: it has no timer of its own, and the workers' timers serve up to the root.
- It is COMPLETE with the root's result, the same bits as everywhere, and from then on is like a slot of `ring.py`.

What a slot *emits* when it closes goes to the parent of a leaf. At the root, and when a result is installed, it goes to
all live members. A leaf reports to its parent the lowest acknowledgement of its members, so no switch above reuses a
slot that a worker still needs.

`ranks` are masks of global ranks, `member` is an index at this switch. A worker is a member with one rank.
"""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.golden.decide import ring as flat
from iswitch.golden.decide import slot as flat_rules
from iswitch.golden.decide.slot import Contributors, Ring, Slot, Step, Work, with_slot
from iswitch.golden.interface.serial import ahead
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Operation, Outcome, SlotState

__all__ = [
    "RULES",
    "LeafReceipt",
    "Rules",
    "close",
    "contest",
    "contribute",
    "contributors",
    "install",
    "keepalive",
    "leave",
    "lowest_acknowledged",
    "receipt",
]


class LeafReceipt(NamedTuple):
    """A receipt that a leaf sends up: all members below hold every result below `seq - behind`.

    `want`: one of them requests the result of `seq`.
    """

    seq: int
    behind: int
    want: bool


def lowest_acknowledged(ring: Ring) -> int:
    """Return the lowest seq whose result some live member may lack. At least one member is live."""
    known = [acknowledged for m, acknowledged in enumerate(ring.acknowledged) if ring.live >> m & 1]
    return min(known, key=lambda acknowledged: ahead(acknowledged, known[0]))


def may_install(slot: Slot) -> bool:
    """A result completes any open slot, also one that has not closed: the root may wait for fewer since SET_H."""
    return slot.state in (SlotState.COLLECTING, SlotState.SENT_UP)


def repeats_uplink(slot: Slot) -> bool:
    """A retransmission from below makes a leaf send up again: the uplink or its answer was lost, or is late.

    The parent accepts any number of repeats.
    """
    return slot.state == SlotState.SENT_UP


def behind_limit(ring: Ring) -> int:
    """A switch is fewer segments than this behind the one it sends up: its own ring allows no more."""
    return len(ring.slots)


class Rules(NamedTuple):
    """The rules of a tree, which the explorer replaces by plausible wrong ones."""

    ring: flat_rules.Rules = flat_rules.RULES
    may_install: Callable[[Slot], bool] = may_install
    repeats_uplink: Callable[[Slot], bool] = repeats_uplink
    lowest_acknowledged: Callable[[Ring], int] = lowest_acknowledged
    behind_limit: Callable[[Ring], int] = behind_limit


RULES = Rules()


def contributors(ring: Ring, index: int) -> Contributors:
    """Return the contributors to a slot's sum."""
    return ring.contributors[index] if ring.contributors else Contributors()


def with_contributors(ring: Ring, index: int, new: Contributors) -> Ring:
    """Return the ring with other contributors to the slot at an index."""
    every = ring.contributors or (Contributors(),) * len(ring.slots)
    return ring._replace(contributors=replace_at(every, index, new))


def close(ring: Ring, work: Work | None, leaf: bool) -> Ring:
    """Close the slot that an operation completes. A leaf sends it up instead of completing it: only the root rounds."""
    if not (leaf and work and work.emit):
        return ring
    return with_slot(ring, work.slot, ring.slots[work.slot]._replace(state=SlotState.SENT_UP))


def contribute(
    ring: Ring,
    *,
    leaf: bool,
    member: int,
    ranks: int,
    seq: int,
    behind: int,
    format: int = 0,
    length: int = 0,
    boundary: bool = False,
    requires_all: bool = False,
    tainted: int = 0,
    partial: bool = False,
    uplink: bool = False,
    collective: int = 0,
    digest: int = 0,
    now_us: int = 0,
    rules: Rules = RULES,
) -> Step:
    """Handle a worker's contribution or a switch's `uplink` that passed the checks of membership and form.

    A worker is less than W behind what it sends. A switch may be up to 2W behind, which is what its own ring allows: if
    a slot closed without the slowest of its members, the other members are a window ahead of that one, and the segment
    that they contribute to is a window ahead of them.

    Parameters
    ----------
    ranks : int
        Ranks in the contribution; 0 if all below were quarantined. Then the contribution only counts as arrived.
    length : int
        Bytes of the elements at 4 bytes each, also for an uplink.
    tainted : int
        Ranks whose elements were rejected, whether these ranks are in the sum or not.
    partial : bool
        Whether a rank below is not in the contribution although it was expected.
    """
    index = seq % len(ring.slots)
    before = ring.slots[index]
    if leaf and before.seq == seq and before.state == SlotState.COMPLETE:
        # A result that was installed did not carry these. Its receivers check its `identity` themselves.
        boundary, requires_all = before.boundary, before.requires_all
        collective, digest = before.collective, before.digest
    step = flat.contribute(
        ring,
        member=member,
        seq=seq,
        behind=behind,
        format=format,
        length=length,
        boundary=boundary,
        requires_all=requires_all,
        tainted=bool(tainted) or not ranks,
        quarantine=not ranks,
        now_us=now_us,
        behind_limit=rules.behind_limit(ring) if uplink else 0,
        collective=collective,
        digest=digest,
        rules=rules.ring,
    )
    slot = step.ring.slots[index]
    if step.outcome in (Outcome.ADDED, Outcome.QUARANTINED):
        old = contributors(step.ring, index) if slot.seq == before.seq else Contributors()
        new = Contributors(old.ranks | ranks, old.tainted | tainted, old.partial or partial)
        return step._replace(ring=close(with_contributors(step.ring, index, new), step.work, leaf))
    if leaf and step.outcome in (Outcome.DUPLICATE, Outcome.LATE) and rules.repeats_uplink(slot):
        return step._replace(work=Work(Operation.SEND_UP, index, False, True, 0), waits_for=0)
    return step._replace(ring=close(step.ring, step.work, leaf))


def keepalive(step: Step, *, leaf: bool, rules: Rules = RULES) -> LeafReceipt | None:
    """Return the receipt with which a leaf answers a retransmission to a slot that it still collects in.

    Nothing else goes up then, and the parent would evict the leaf for the silence of one worker below it. If the slot
    has met two collectives, the member gets a NOTICE instead.
    """
    if leaf and step.outcome == Outcome.DUPLICATE and not step.work and step.differs_from is None:
        return LeafReceipt(rules.lowest_acknowledged(step.ring), 0, False)
    return None


def install(
    ring: Ring,
    *,
    seq: int,
    ranks: int,
    tainted: int = 0,
    partial: bool = False,
    format: int = 0,
    length: int = 0,
    identity: int = 0,
    rules: Rules = RULES,
) -> Step:
    """Install the parent's result at a leaf, so that every member below receives the root's bits.

    The slot may still be on the lap before, if no member below contributed. It passes on the result's `identity`.
    """
    index = seq % len(ring.slots)
    slot, distance = ring.slots[index], ahead(seq, ring.slots[index].seq)
    if distance > len(ring.slots):
        return Step(ring, Outcome.WINDOW)
    if distance < 0 or not distance and slot.state == SlotState.EMPTY:
        return Step(ring, Outcome.STALE)
    if distance > 0:
        if not rules.ring.may_overwrite(ring, slot):
            return Step(ring, Outcome.SLOT_HELD)
        slot = Slot(seq, SlotState.COLLECTING, expected=ring.live, format=format, length=length)
    if format != slot.format:
        return Step(ring, Outcome.FORMAT)
    if length != slot.length:
        return Step(ring, Outcome.LENGTH)
    if not rules.may_install(slot):
        return Step(ring, Outcome.DUPLICATE)
    ring = with_slot(ring, index, slot._replace(state=SlotState.COMPLETE, collective=0, digest=identity, rival=0))
    ring = with_contributors(ring, index, Contributors(ranks, tainted, partial))
    return Step(ring, Outcome.ADDED, Work(Operation.INSTALL_DOWN, index, True, True, ring.live))


def contest(ring: Ring, *, seq: int, collective: int) -> tuple[Ring, Outcome]:
    """Handle the parent's NOTICE that a slot which was sent up belongs to another collective there.

    The slot remembers the other collective, and the retransmissions of its members are answered by a NOTICE.
    """
    index = seq % len(ring.slots)
    slot = ring.slots[index]
    if slot.seq != seq or slot.state != SlotState.SENT_UP:
        return ring, Outcome.STALE
    return with_slot(ring, index, slot._replace(rival=collective)), Outcome.CONTROL


def receipt(
    ring: Ring, *, leaf: bool, member: int, seq: int, behind: int, want: bool, rules: Rules = RULES
) -> tuple[Step, LeafReceipt | None]:
    """Handle a member's receipt, and return the receipt that a leaf sends up because of it.

    One goes up for each that comes, so the timer that repeats the first also repeats a lost one. None goes up if the
    leaf has the result that is wanted. A result beyond the window of the slowest member is not asked for: that member
    asks too, and is served first.
    """
    step = flat.receipt(ring, member=member, seq=seq, behind=behind, want=want)
    if not leaf or step.outcome != Outcome.RECEIPT or step.work:
        return step, None
    index, low = seq % len(ring.slots), rules.lowest_acknowledged(step.ring)
    slot = step.ring.slots[index]
    if want and slot.seq == seq and rules.repeats_uplink(slot):
        return step._replace(work=Work(Operation.SEND_UP, index, False, True, 0)), None
    if want and 0 <= ahead(seq, low) <= ring.window:
        return step, LeafReceipt(seq, ahead(seq, low), True)
    return step, LeafReceipt(low, 0, False)


def leave(ring: Ring, member: int, *, leaf: bool) -> tuple[Ring, list[Work]]:
    """Remove a member, as `ring.leave` does. What thereby closes at a leaf goes up; closed slots stay as they are."""
    ring, works = flat.leave(ring, member)
    for work in works:
        ring = close(ring, work, leaf)
    return ring, works

"""The ring in a tree of switches: what a slot does that has a parent, or members that are switches.

Pure functions around those of `ring.py`, for every switch of a tree. A *leaf* here is any switch with a parent, for
which it is one member among others; the *root* has none. All of them have the same window, epoch and first seq. A
leaf's slot

    EMPTY -> COLLECTING -> SENT_UP -> COMPLETE

- closes when nobody below is left to wait for: it sends its accumulators up unrounded and never changes them again.
Neither
  departures nor late contributions open it;
- is SENT_UP until the result from above is installed in it. Whoever asks meanwhile, by any repeat, makes the leaf send
up again:
  it has no timer of its own, the workers' serve all the way to the root;
- is COMPLETE with the root's result, the same bits as everywhere, and from then on is like a slot of `ring.py`.

What a slot *emits* when it closes goes to the parent of a leaf; at the root, and when a result is installed, to all
live members. A leaf tells its parent what the *worst* of its members holds, so no switch above reuses a slot that a
worker still needs.

`ranks` are masks of global ranks, `member` is an index at this switch. A worker is a member with one rank.
"""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.wire import Operation, Outcome, SlotState
from sim.model.decide import ring as flat
from sim.model.decide.ring import Names, Ring, Slot, Step, Work, forward, put

__all__ = ["RULES", "Report", "Rules", "close", "contribute", "install", "leave", "lowest", "names", "receipt"]


class Report(NamedTuple):
    """A receipt that a leaf sends up: nothing below `seq - behind` is lacking by anybody below; `want`: the result of
    `seq` is."""

    seq: int
    behind: int
    want: bool


def lowest(ring: Ring) -> int:
    """The lowest seq whose result some live member may lack. At least one member is live."""
    lives = [acknowledged for m, acknowledged in enumerate(ring.acknowledged) if ring.live >> m & 1]
    return min(lives, key=lambda acknowledged: forward(acknowledged, lives[0]))


def may_install(slot: Slot) -> bool:
    """A result settles any open slot, also one that has not closed: the root may have been told to wait for fewer."""
    return slot.state in (SlotState.COLLECTING, SlotState.SENT_UP)


def sends_again(slot: Slot) -> bool:
    """A repeat says that the uplink or its answer was lost, or is late; the parent takes any number of them."""
    return slot.state == SlotState.SENT_UP


def reach(ring: Ring) -> int:
    """A switch below is fewer segments than this behind the one it sends up."""
    return len(ring.slots)


class Rules(NamedTuple):
    """The rules the explorer replaces by plausible wrong ones."""

    ring: flat.Rules = flat.RULES
    may_install: Callable[[Slot], bool] = may_install
    sends_again: Callable[[Slot], bool] = sends_again
    lowest: Callable[[Ring], int] = lowest
    reach: Callable[[Ring], int] = reach


RULES = Rules()


def names(ring: Ring, index: int) -> Names:
    """Who is in a slot's sum."""
    return ring.names[index] if ring.names else Names()


def name(ring: Ring, index: int, new: Names) -> Ring:
    every = ring.names or (Names(),) * len(ring.slots)
    return ring._replace(names=every[:index] + (new,) + every[index + 1 :])


def close(ring: Ring, work: Work | None, leaf: bool) -> Ring:
    """What `ring.py` completes, a leaf sends up instead."""
    if not (leaf and work and work.emit):
        return ring
    return put(ring, work.slot, ring.slots[work.slot]._replace(state=SlotState.SENT_UP))


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
    now_us: int = 0,
    rules: Rules = RULES,
) -> Step:
    """A contribution of a worker, or the `uplink` of a switch, that passed the checks of membership and form.

    `ranks`: who is in it, none if all below was quarantined; then it only counts as arrived. `tainted`: whose numbers
    were rejected, in or not. `partial`: somebody below is not in it though waited for. Uplinks give `length` as their
    elements have at 4 bytes.

    A worker is less than W behind what it sends. A switch may be up to 2W behind, what its own ring allows: where a
    slot closed without the worst of its members, the others are a window ahead of that one, and the segment they are at
    is another.
    """
    index = seq % len(ring.slots)
    if leaf and ring.slots[index].seq == seq and ring.slots[index].state == SlotState.COMPLETE:
        boundary, requires_all = (
            ring.slots[index].boundary,
            ring.slots[index].requires_all,
        )  # a result that opened the slot did not say
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
        reach=rules.reach(ring) if uplink else 0,
        rules=rules.ring,
    )
    slot = step.ring.slots[index]
    if step.outcome in (Outcome.ADDED, Outcome.QUARANTINED):
        old = names(ring, index) if slot.seq == ring.slots[index].seq else Names()
        new = Names(old.ranks | ranks, old.tainted | tainted, old.partial or partial)
        return step._replace(ring=close(name(step.ring, index, new), step.work, leaf))
    if leaf and step.outcome in (Outcome.DUPLICATE, Outcome.LATE) and rules.sends_again(slot):
        return step._replace(work=Work(Operation.SEND_UP, index, False, True, 0), waits=0)
    return step._replace(ring=close(step.ring, step.work, leaf))


def sign_of_life(step: Step, *, leaf: bool, rules: Rules = RULES) -> Report | None:
    """What a leaf tells its parent when a repeat comes for a slot that it still collects in: nothing else goes up, and
    the parent would evict it for a silence of which a worker below is guilty."""
    if leaf and step.outcome == Outcome.DUPLICATE and not step.work:
        return Report(rules.lowest(step.ring), 0, False)
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
    rules: Rules = RULES,
) -> Step:
    """The parent's result at a leaf. It may find its slot on the lap before, if nobody below had a part in it."""
    index = seq % len(ring.slots)
    slot, ahead = ring.slots[index], forward(seq, ring.slots[index].seq)
    if ahead > len(ring.slots):
        return Step(ring, Outcome.WINDOW)
    if ahead < 0 or not ahead and slot.state == SlotState.EMPTY:
        return Step(ring, Outcome.STALE)
    if ahead > 0:
        if not rules.ring.may_overwrite(ring, slot):
            return Step(ring, Outcome.SLOT_HELD)
        slot = Slot(seq, SlotState.COLLECTING, expected=ring.live, format=format, length=length)
    if format != slot.format:
        return Step(ring, Outcome.FORMAT)
    if length != slot.length:
        return Step(ring, Outcome.LENGTH)
    if not rules.may_install(slot):
        return Step(ring, Outcome.DUPLICATE)
    ring = name(put(ring, index, slot._replace(state=SlotState.COMPLETE)), index, Names(ranks, tainted, partial))
    return Step(ring, Outcome.ADDED, Work(Operation.INSTALL_DOWN, index, True, True, ring.live))


def receipt(
    ring: Ring, *, leaf: bool, member: int, seq: int, behind: int, want: bool, rules: Rules = RULES
) -> tuple[Step, Report | None]:
    """A member's receipt, and what a leaf makes of it for its parent, unless it has the result that is wanted.

    One goes up for each that comes, so that a lost one is repeated by whose timer repeats the first. What somebody
    wants beyond the window of the worst is not asked for: the worst asks too, and is helped first.
    """
    step = flat.receipt(ring, member=member, seq=seq, behind=behind, want=want)
    if not leaf or step.outcome != Outcome.RECEIPT or step.work:
        return step, None
    index, low = seq % len(ring.slots), rules.lowest(step.ring)
    slot = step.ring.slots[index]
    if want and slot.seq == seq and rules.sends_again(slot):
        return step._replace(work=Work(Operation.SEND_UP, index, False, True, 0)), None
    if want and 0 <= forward(seq, low) <= ring.window:
        return step, Report(seq, forward(seq, low), True)
    return step, Report(low, 0, False)


def leave(ring: Ring, member: int, *, leaf: bool) -> tuple[Ring, list[Work]]:
    """`ring.leave`; what thereby closes at a leaf goes up. Slots that have closed stay as they are."""
    ring, works = flat.leave(ring, member)
    for work in works:
        ring = close(ring, work, leaf)
    return ring, works

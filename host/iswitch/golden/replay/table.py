"""Golden model of one table: items sampled by priority, counted and limited. Sections 4 and 5 of `docs/replay.md`.

An item's number is a handle of `slots.py` as one integer of 32 bits: the generation above the slot. The first
generation is 1, so the first number is the capacity. After 2^32 - `capacity` adds come the numbers 0 to `capacity` - 1,
then the first ones again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from iswitch.config import Replay
from iswitch.golden.interface.serial import SERIAL
from iswitch.golden.replay.fractions import fractions
from iswitch.golden.replay.histogram import bucket
from iswitch.golden.replay.rebuild import SumState, is_intact, next_slots_allowed, restore
from iswitch.golden.replay.slots import Handle, Slots
from iswitch.wire.replay import ReplayOutcome

__all__ = ["Limits", "Published", "Row", "Table"]

RATIO_ONE = 1 << 16
"""The credit of one sample."""

Row = tuple[int, int]
"""An item and its priority."""


class Limits(NamedTuple):
    """The limits that LIMIT sets; at first there are none."""

    size: int = 0
    ratio: int = 0
    behind: int = 0
    ahead: int = 0
    times: int = 0


class Published(NamedTuple):
    """Where published parameters are: `units` from `start` in the log of `session`.

    This stays as it is, whatever happens to the units.
    """

    session: int = 0
    start: int = 0
    units: int = 0
    version: int = 0


class Table:
    """One table.

    `adds` does not wrap: a SAMPLE asks whether so many items were *ever* added, also after 2^32 adds. `sums` says
    whether the sum tree is right. A model has no bit errors: a test sets `sums` where the switch would find one, and
    puts the slots whose priorities have a bit error into `damaged`, and those whose counts of samples have one into
    `damaged_counts`. `limited`: a LIMIT has set `times`.
    """

    def __init__(self, config: Replay) -> None:
        self.capacity, self.top, self.sample_count_bits = (
            config.capacity,
            (1 << config.priority_bits) - 1,
            config.sample_count_bits,
        )
        self.bits = self.capacity.bit_length() - 1
        self.slots = Slots(capacity=config.capacity, priority_bits=config.priority_bits, generation_bits=32 - self.bits)
        self.times = [0] * self.capacity
        self.retired = (1 << config.sample_count_bits) - 1  # the count of an item that is never sampled again
        self.buckets = [self.capacity, *[0] * 255]
        self.adds = self.samples = self.credit = 0
        self.ticket = 1
        self.limits, self.published = Limits(), Published()
        self.sums = SumState(restored=config.capacity)
        self.limited = False
        self.damaged: set[int] = set()
        self.damaged_counts: set[int] = set()

    @property
    def is_intact(self) -> bool:
        """Whether the table may be sampled and listed."""
        return is_intact(self.sums, self.capacity)

    @property
    def total(self) -> int:
        """The sum of all priorities that are in the sum tree."""
        if self.sums.restored < self.capacity:
            return sum(self.slots.tree.priorities[: self.sums.restored])
        return self.slots.tree.total

    def extreme_buckets(self) -> tuple[int, int]:
        """Return the buckets of the least priority above 0 and of the greatest; 0 and 0 if all are 0."""
        used = [k for k, count in enumerate(self.buckets) if k and count]
        if self.sums.restored < self.capacity:
            used = sorted({bucket(p) for p in self.slots.tree.priorities[: self.sums.restored] if p})
        return (used[0], used[-1]) if used else (0, 0)

    # Items

    def handle(self, item: int) -> Handle:
        """Return the handle of an item's number."""
        return Handle(item % self.capacity, item >> self.bits)

    def item(self, handle: Handle) -> int:
        """Return the number of a handle."""
        return handle.generation << self.bits | handle.slot

    def slot(self, item: int) -> int | None:
        """Return the slot of an item, or None if it was overwritten."""
        handle = self.handle(item)
        return handle.slot if self.slots.holds(handle) else None

    def row(self, slot: int) -> Row:
        """Return the item in a slot, modulo the capacity, and its priority; (0, 0) if it was never filled."""
        slot %= self.capacity
        if slot >= self.slots.filled:
            return 0, 0
        return self.item(Handle(slot, self.slots.generations[slot])), self.slots.tree.priorities[slot]

    # Limits

    def add_wait_reason(self, count: int) -> ReplayOutcome | None:
        """Return why an ADD must wait: items may be at most `ahead` samples ahead of what was sampled."""
        limits = self.limits
        free = (
            not limits.ratio
            or self.slots.filled < limits.size
            or self.credit + count * limits.ratio <= limits.ahead * RATIO_ONE
        )
        return None if free else ReplayOutcome.RATE

    def sample_wait_reason(self, count: int, items: int) -> ReplayOutcome | None:
        """Return why a SAMPLE must wait: for items, for a priority above 0, or for credit."""
        limits = self.limits
        if not self.is_intact:
            return None  # it is executed, without effect
        if self.adds < items or self.slots.filled < limits.size:
            return ReplayOutcome.ITEMS
        if not self.total:
            return ReplayOutcome.EMPTY
        return (
            ReplayOutcome.RATE if limits.ratio and count * RATIO_ONE > self.credit + limits.behind * RATIO_ONE else None
        )

    # Changes

    def advance_ticket(self) -> None:
        """Advance the ticket, from 1 to 2^32 - 1 and around."""
        self.ticket = self.ticket % (SERIAL - 1) + 1

    def recount(self, old: int, new: int) -> None:
        """Move one priority between buckets."""
        self.buckets[bucket(old)] -= 1
        self.buckets[bucket(new)] += 1

    def set_priority(self, slot: int, priority: int) -> None:
        """Set the priority of a slot."""
        self.recount(self.slots.tree.update(slot, priority), priority)
        self.damaged.discard(slot)

    def add(self, priorities: list[int]) -> list[int]:
        """Add items, and return the slots that they fill."""
        if self.slots.filled >= self.limits.size:
            self.credit += len(priorities) * self.limits.ratio
        slots = []
        for priority in priorities:
            slot = self.slots.next
            self.recount(self.slots.tree.priorities[slot], min(priority, self.top))
            self.slots.add(min(priority, self.top))
            self.times[slot] = 0
            self.damaged.discard(slot)
            self.damaged_counts.discard(slot)
            slots.append(slot)
        self.adds += len(priorities)
        return slots

    def update(self, item: int, priority: int) -> bool:
        """Set a priority, and return whether the item was there.

        An item that was sampled as often as its table allowed then stays at 0, whatever the table allows now. So does
        one whose count has a bit error.
        """
        slot = self.slot(item)
        if slot is None:
            return False
        most = min(self.limits.times or self.retired, self.retired)
        is_lost = self.limited and slot in self.damaged_counts
        spent = self.retired and (is_lost or self.times[slot] >= most)
        self.set_priority(slot, 0 if spent else min(priority, self.top))
        return True

    def sample(self, seed: int, count: int, stride: int) -> list[Row]:
        """Return a batch of items and priorities, all sampled from the same priorities. `total` is not 0."""
        rows = []
        for fraction in fractions(seed, count, stride):
            sampled = self.slots.sample(fraction)
            assert sampled is not None
            rows.append((self.item(sampled.handle), sampled.priority))
        self.samples += count
        self.credit -= count * RATIO_ONE if self.limits.ratio else 0
        return rows

    def count_samples(self, rows: Sequence[Row]) -> None:
        """Count samples. An item that was sampled `times` times is never sampled again; 0 counts nothing.

        An item whose count has a bit error is never sampled again, either.
        """
        for item, _ in rows if self.limits.times else ():
            slot = item % self.capacity
            self.times[slot] = min(self.times[slot] + 1, self.retired)
            if self.times[slot] >= self.limits.times or slot in self.damaged_counts:
                self.damaged_counts.discard(slot)
                self.times[slot] = self.retired
                self.set_priority(slot, 0)

    def rebuild(self, slot: int, count: int) -> tuple[ReplayOutcome, int]:
        """Return the next `count` slots to the sum tree. Return the outcome, and how many priorities are lost."""
        if not next_slots_allowed(self.sums, slot, count, self.capacity):
            return ReplayOutcome.RANGE, 0
        self.sums = restore(self.sums, slot, count)
        lost = self.damaged & set(range(slot, slot + count))
        for damaged in lost:
            self.set_priority(damaged, 0)
        return ReplayOutcome.CORRUPT if self.sums.corrupt else ReplayOutcome.DONE, len(lost)

    def limit(self, limits: Limits) -> ReplayOutcome:
        """Set limits, and the credit to 0. The counts of samples stay, and so do the items that are retired."""
        if limits.times >> self.sample_count_bits:
            return ReplayOutcome.RANGE
        self.limits, self.credit, self.limited = limits, 0, self.limited or limits.times != 0
        return ReplayOutcome.DONE

"""Golden model of one table: items with priorities, drawn as often as these say, counted, limited. Sections 4 and 5 of
`docs/replay.md`.

An item's number is a handle of `slots.py` as one integer: the generation over the slot, 32 bits together. The first
generation is 1, so the first number is the capacity. After 2^32 - `capacity` adds come the numbers 0 to `capacity` - 1,
then those from the start.
"""

from collections.abc import Sequence
from typing import NamedTuple

from iswitch.config import Replay
from iswitch.wire.replay import Fate
from sim.model.replay.draws import fractions
from sim.model.replay.session import SERIAL
from sim.model.replay.slots import Handle, Slots

__all__ = ["Limits", "Published", "Row", "Table", "bucket"]

RATIO_ONE = 1 << 16
"""One draw for each item, in credit."""

Row = tuple[int, int]
"""An item and its priority."""


class Limits(NamedTuple):
    """What LIMIT sets; at first nothing is limited."""

    size: int = 0
    ratio: int = 0
    behind: int = 0
    ahead: int = 0
    times: int = 0


class Published(NamedTuple):
    """Where parameters are: `units` from `start` in the log of `session`, which goes on to say so whatever becomes of
    them."""

    session: int = 0
    start: int = 0
    units: int = 0
    version: int = 0


def bucket(priority: int) -> int:
    """Of a priority, on a scale of 8 steps to an octave."""
    e = max(priority.bit_length() - 4, 0)
    return 8 * e + (priority >> e)


class Table:
    """`adds` is not modulo 2^32 here: a SAMPLE asks whether so many items were *ever* added, and this has an answer
    after 2^32 adds too."""

    def __init__(self, config: Replay) -> None:
        self.capacity, self.top, self.times_bits = config.capacity, (1 << config.priority_bits) - 1, config.times_bits
        self.bits = self.capacity.bit_length() - 1
        self.slots = Slots(capacity=config.capacity, priority_bits=config.priority_bits, generation_bits=32 - self.bits)
        self.times = [0] * self.capacity
        self.buckets = [self.capacity, *[0] * 255]
        self.adds = self.draws = self.credit = 0
        self.ticket = 1
        self.limits, self.published = Limits(), Published()

    @property
    def total(self) -> int:
        return self.slots.tree.total

    def extremes(self) -> tuple[int, int]:
        """Buckets of the least priority above 0 and of the greatest; 0 and 0 if there is none."""
        used = [k for k, count in enumerate(self.buckets) if k and count]
        return (used[0], used[-1]) if used else (0, 0)

    # Items

    def handle(self, item: int) -> Handle:
        return Handle(item % self.capacity, item >> self.bits)

    def item(self, handle: Handle) -> int:
        return handle.generation << self.bits | handle.slot

    def slot(self, item: int) -> int | None:
        """Where the item is, if it is there."""
        handle = self.handle(item)
        return handle.slot if self.slots.holds(handle) else None

    def row(self, slot: int) -> Row:
        """What fills a slot, modulo the capacity; (0, 0): nothing yet."""
        slot %= self.capacity
        if slot >= self.slots.filled:
            return 0, 0
        return self.item(Handle(slot, self.slots.generations[slot])), self.slots.tree.priorities[slot]

    # What has to wait

    def add_waits(self, count: int) -> Fate | None:
        limits = self.limits
        free = (
            not limits.ratio
            or self.slots.filled < limits.size
            or self.credit + count * limits.ratio <= limits.ahead * RATIO_ONE
        )
        return None if free else Fate.RATE

    def sample_waits(self, count: int, items: int) -> Fate | None:
        limits = self.limits
        if items and (self.adds - items) % SERIAL >= SERIAL // 2 or self.slots.filled < limits.size:
            return Fate.ITEMS
        if not self.total:
            return Fate.EMPTY
        return Fate.RATE if limits.ratio and count * RATIO_ONE > self.credit + limits.behind * RATIO_ONE else None

    # What changes

    def done(self) -> None:
        """A ticket has passed."""
        self.ticket = self.ticket % (SERIAL - 1) + 1

    def counted(self, old: int, new: int) -> None:
        self.buckets[bucket(old)] -= 1
        self.buckets[bucket(new)] += 1

    def set(self, slot: int, priority: int) -> None:
        self.counted(self.slots.tree.update(slot, priority), priority)

    def add(self, priorities: list[int]) -> list[int]:
        """Adds items in a row; the slots that they fill."""
        if self.slots.filled >= self.limits.size:
            self.credit += len(priorities) * self.limits.ratio
        slots = []
        for priority in priorities:
            slot = self.slots.next
            self.counted(self.slots.tree.priorities[slot], min(priority, self.top))
            self.slots.add(min(priority, self.top))
            self.times[slot] = 0
            slots.append(slot)
        self.adds += len(priorities)
        return slots

    def update(self, item: int, priority: int) -> bool:
        """Whether the item was there. What reached `times` stays at 0."""
        slot = self.slot(item)
        if slot is None:
            return False
        spent = self.limits.times and self.times[slot] >= self.limits.times
        self.set(slot, 0 if spent else min(priority, self.top))
        return True

    def sample(self, seed: int, count: int, stride: int) -> list[Row]:
        """The draws, all from the same priorities; `total` is not 0."""
        rows = []
        for fraction in fractions(seed, count, stride):
            drawn = self.slots.draw(fraction)
            assert drawn is not None
            rows.append((self.item(drawn.handle), drawn.priority))
        self.draws += count
        self.credit -= count * RATIO_ONE if self.limits.ratio else 0
        return rows

    def use(self, rows: Sequence[Row]) -> None:
        """Counts draws; what was drawn `times` times is never drawn again. `times` 0: nothing is counted."""
        for item, _ in rows if self.limits.times else ():
            slot = item % self.capacity
            self.times[slot] = min(self.times[slot] + 1, (1 << self.times_bits) - 1)
            if self.times[slot] >= self.limits.times:
                self.set(slot, 0)

    def limit(self, limits: Limits) -> Fate:
        """Sets limits, and the credit to 0. Counts of draws stay."""
        if limits.times >> self.times_bits:
            return Fate.RANGE
        self.limits, self.credit = limits, 0
        return Fate.DONE

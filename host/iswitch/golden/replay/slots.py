"""Golden model of the slot table: which handles are still valid.

Slots are filled first in, first out. A slot's generation goes up by one when the slot is filled again, and a handle is
a slot with the generation that it was filled with. So an update of an overwritten item is recognised by its handle.
"""

from typing import NamedTuple

from iswitch.golden.replay.tree import SampledLeaf, SumTree

__all__ = ["Handle", "SampledItem", "Slots"]


class Handle(NamedTuple):
    """What names an item."""

    slot: int
    generation: int


class SampledItem(NamedTuple):
    """A sampled handle with its priority, and the total that it was sampled from."""

    handle: Handle
    priority: int
    total: int


class Slots:
    """A table of slots.

    Parameters
    ----------
    capacity : int
        Number of slots, a power of two.
    priority_bits : int
        Width of a priority.
    generation_bits : int
        Width of a generation, which wraps.
    """

    def __init__(self, *, capacity: int, priority_bits: int, generation_bits: int) -> None:
        self.tree = SumTree(capacity=capacity, priority_bits=priority_bits)
        self.generations = [0] * capacity
        self.wrap = 1 << generation_bits
        self.next, self.filled = 0, 0

    def add(self, priority: int) -> Handle:
        """Fill the next slot, and return its handle."""
        slot, self.next = self.next, (self.next + 1) % len(self.generations)
        self.filled = min(self.filled + 1, len(self.generations))
        self.generations[slot] = (self.generations[slot] + 1) % self.wrap
        self.tree.update(slot, priority)
        return Handle(slot, self.generations[slot])

    def holds(self, handle: Handle) -> bool:
        """Return whether a handle is still valid."""
        return handle.slot < self.filled and self.generations[handle.slot] == handle.generation

    def update(self, handle: Handle, priority: int) -> bool:
        """Set the priority of an item if its handle is still valid, and return whether it is."""
        valid = self.holds(handle)
        if valid:
            self.tree.update(handle.slot, priority)
        return valid

    def read(self, slot: int) -> tuple[Handle, int] | None:
        """Return the handle and the priority of a slot, or None if it was never filled."""
        return (Handle(slot, self.generations[slot]), self.tree.priorities[slot]) if slot < self.filled else None

    def sample(self, fraction: int) -> SampledItem | None:
        """Return the item at a fraction of the total, or None if all priorities are 0."""
        found: SampledLeaf | None = self.tree.sample(fraction)
        return found and SampledItem(Handle(found.leaf, self.generations[found.leaf]), found.priority, found.total)

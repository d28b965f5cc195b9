"""Golden model of the slot table: what a handle is good for.

A slot is filled again when all others have been (first in, first out), and its generation then goes up by one; a handle
is a slot with the generation that it was filled with. So an update for something that is no longer there is told from
one that is meant.
"""

from typing import NamedTuple

from sim.model.replay.tree import Draw, SumTree

__all__ = ["Drawn", "Handle", "Slots"]


class Handle(NamedTuple):
    slot: int
    generation: int


class Drawn(NamedTuple):
    """A drawn handle with its priority, and the total that it was drawn from."""

    handle: Handle
    priority: int
    total: int


class Slots:
    """`capacity` slots, a power of two, with generations of `generation_bits`, modulo 2^bits."""

    def __init__(self, *, capacity: int, priority_bits: int, generation_bits: int) -> None:
        self.tree = SumTree(capacity=capacity, priority_bits=priority_bits)
        self.generations = [0] * capacity
        self.wrap = 1 << generation_bits
        self.next, self.filled = 0, 0

    def add(self, priority: int) -> Handle:
        """Fills the next slot."""
        slot, self.next = self.next, (self.next + 1) % len(self.generations)
        self.filled = min(self.filled + 1, len(self.generations))
        self.generations[slot] = (self.generations[slot] + 1) % self.wrap
        self.tree.update(slot, priority)
        return Handle(slot, self.generations[slot])

    def holds(self, handle: Handle) -> bool:
        """Whether the handle is still good."""
        return handle.slot < self.filled and self.generations[handle.slot] == handle.generation

    def update(self, handle: Handle, priority: int) -> bool:
        """Whether the handle is still good; else nothing changes."""
        good = self.holds(handle)
        if good:
            self.tree.update(handle.slot, priority)
        return good

    def read(self, slot: int) -> tuple[Handle, int] | None:
        """A slot's handle and priority; None if it was never filled."""
        return (Handle(slot, self.generations[slot]), self.tree.priorities[slot]) if slot < self.filled else None

    def draw(self, fraction: int) -> Drawn | None:
        """None if all priorities are 0."""
        found: Draw | None = self.tree.draw(fraction)
        return found and Drawn(Handle(found.leaf, self.generations[found.leaf]), found.priority, found.total)

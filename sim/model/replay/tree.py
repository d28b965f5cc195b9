"""Golden model of the sum tree: a leaf is drawn as often as its priority says, exactly.

Priorities are unsigned integers. They stand one after another as half-open intervals, leaf 0 first, and a draw finds
the leaf in whose interval its position lies: so a leaf of priority 0 has none, and is never drawn. Sums are kept as a
binary indexed tree (Fenwick, 1994), which has nothing in common with the gateware's.
"""

from typing import NamedTuple

__all__ = ["FRACTION_BITS", "Draw", "SumTree"]

FRACTION_BITS = 64
"""A draw says where in the total it wants to be as a fraction of 2^64."""


class Draw(NamedTuple):
    """A drawn leaf with its priority, and the total that it was drawn from."""

    leaf: int
    priority: int
    total: int


class SumTree:
    """Priorities of `capacity` leaves, a power of two; all are 0 at first."""

    def __init__(self, *, capacity: int, priority_bits: int) -> None:
        if capacity < 1 or capacity & (capacity - 1):
            raise ValueError(f"SumTree capacity must be a power of two, not {capacity!r}")
        self.capacity, self.priority_bits = capacity, priority_bits
        self.priorities = [0] * capacity
        self.total = 0
        self._sums = [0] * (capacity + 1)

    def update(self, leaf: int, priority: int) -> int:
        """Sets a priority; returns what it was. ValueError if it has too many bits, IndexError if there is no such
        leaf."""
        if priority >> self.priority_bits:
            raise ValueError(f"SumTree priority must be 0 to {(1 << self.priority_bits) - 1}, not {priority!r}")
        if not 0 <= leaf < self.capacity:
            raise IndexError(f"SumTree leaf must be 0 to {self.capacity - 1}, not {leaf!r}")
        old, self.priorities[leaf] = self.priorities[leaf], priority
        self.total += priority - old
        at = leaf + 1
        while at <= self.capacity:
            self._sums[at] += priority - old
            at += at & -at
        return old

    def draw(self, fraction: int) -> Draw | None:
        """The leaf at `fraction` 2^-64 of the total; None if all priorities are 0."""
        if not self.total:
            return None
        leaf, rest, step = 0, fraction * self.total >> FRACTION_BITS, self.capacity
        while step:
            if leaf + step <= self.capacity and self._sums[leaf + step] <= rest:
                leaf += step
                rest -= self._sums[leaf]
            step >>= 1
        return Draw(leaf, self.priorities[leaf], self.total)

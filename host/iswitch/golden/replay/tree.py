"""Golden model of the sum tree: a leaf is sampled exactly in proportion to its priority.

Priorities are unsigned integers. They stand one after another as half-open intervals, leaf 0 first, and sampling finds
the leaf in whose interval a position lies. So a leaf of priority 0 has no interval and is never sampled. Sums are kept
as a binary indexed tree (Fenwick, 1994), which has nothing in common with the gateware's.
"""

from typing import NamedTuple

__all__ = ["FRACTION_BITS", "SampledLeaf", "SumTree"]

FRACTION_BITS = 64
"""A position in the total is given as a fraction of 2^64."""


class SampledLeaf(NamedTuple):
    """A sampled leaf with its priority, and the total that it was sampled from."""

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
        """Set a priority, and return what it was.

        Raises
        ------
        ValueError
            If the priority has too many bits.
        IndexError
            If there is no such leaf.
        """
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

    def sample(self, fraction: int) -> SampledLeaf | None:
        """Return the leaf at `fraction` 2^-64 of the total, or None if all priorities are 0."""
        if not self.total:
            return None
        leaf, rest, step = 0, fraction * self.total >> FRACTION_BITS, self.capacity
        while step:
            if leaf + step <= self.capacity and self._sums[leaf + step] <= rest:
                leaf += step
                rest -= self._sums[leaf]
            step >>= 1
        return SampledLeaf(leaf, self.priorities[leaf], self.total)

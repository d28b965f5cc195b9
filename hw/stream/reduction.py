"""Balanced trees over bits and values: as deep as the logarithm of their number."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from amaranth.hdl import Mux, Value

__all__ = ["combine_pairs", "lowest_set", "popcount", "reaches", "reduce_tree", "tree_sum"]

T = TypeVar("T")


def combine_pairs(function: Callable[[T, T], T], values: Sequence[T]) -> list[T]:
    """Return one level of a tree: `function` of each two neighbours, and the last value if it has no neighbour."""
    pairs = zip(values[::2], values[1::2], strict=False)
    return [function(earlier, later) for earlier, later in pairs] + list(values[len(values) & ~1 :])


def reduce_tree(function: Callable[[T, T], T], values: Sequence[T]) -> T:
    """Return an associative function of all values, of which there is at least one. Their order is kept."""
    if not values:
        raise ValueError("reduce_tree values must be at least one, not none")
    while len(values) > 1:
        values = combine_pairs(function, values)
    return values[0]


def tree_sum(values: Sequence[Value]) -> Value:
    """Return the sum of values, by a tree of adders."""
    return reduce_tree(lambda a, b: a + b, values)


def popcount(bits: Value) -> Value:
    """Return the number of bits that are 1."""
    return tree_sum(list(bits))


def reaches(value: Value, limit: int) -> Value:
    """Return whether an unsigned value is at least `limit`, which is positive. The carry chain is no longer than
    `limit`; a comparison of all bits would be as long as the value."""
    low = (limit - 1).bit_length()
    above = value[low:].any()
    return above if limit == 1 << low else above | (value[:low] >= limit)


def lowest_set(bits: Value) -> Value:
    """Return the index of the lowest bit that is 1, or 0 if no bit is."""

    def lower(one, other):
        return one[0] | other[0], Mux(one[0], one[1], other[1])

    return reduce_tree(lower, [(bit, Mux(bit, k, 0)) for k, bit in enumerate(bits)])[1]

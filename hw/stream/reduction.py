"""Balanced trees over bits and values."""

from amaranth.hdl import Mux

__all__ = ["lowest_set", "popcount", "tree_sum"]


def popcount(bits):
    """Number of ones, as a balanced tree."""
    counts = list(bits)
    while len(counts) > 1:
        counts = [a + b for a, b in zip(counts[::2], counts[1::2], strict=False)] + counts[len(counts) & ~1 :]
    return counts[0]


def lowest_set(bits):
    """Index of the lowest one, as a balanced tree; 0 if there is none."""
    found = [(bit, Mux(bit, k, 0)) for k, bit in enumerate(bits)]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [(here | later, Mux(here, k, other)) for (here, k), (later, other) in pairs] + found[len(found) & ~1 :]
    return found[0][1]


def tree_sum(values):
    """As a tree of adders."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) & ~1 :]
    return values[0]

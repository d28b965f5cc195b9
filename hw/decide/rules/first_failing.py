"""The first of several checks that fails."""

from collections.abc import Iterable
from enum import IntEnum

from amaranth.hdl import Mux, Value

from hw.stream.reduction import reduce_tree

__all__ = ["first_failing"]


def first_failing(checks: Iterable[tuple[Value, IntEnum]]) -> tuple[Value, Value]:
    """Return whether a check fails, and the name of the first that does, which means nothing if none fails.

    `checks` are conditions that must hold, with names. The tree is balanced: its depth is the logarithm of their
    number.
    """

    def first(one, other):
        return one[0] | other[0], Mux(one[0], one[1], other[1])

    return reduce_tree(first, [(~good, name) for good, name in checks])

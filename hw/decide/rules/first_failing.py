"""Of checks in a row, the first that fails."""

from collections.abc import Iterable
from enum import IntEnum

from amaranth.hdl import Mux, Value

__all__ = ["first_failing"]


def first_failing(checks: Iterable[tuple[Value, IntEnum]]) -> tuple[Value, Value]:
    """Whether a check fails, and the name of the first that does, which means nothing if none does. `checks`: what must
    hold, and a name. A balanced tree, so as deep as the logarithm of their number."""
    found = [(~good, name) for good, name in checks]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [(fails | later, Mux(fails, name, other)) for (fails, name), (later, other) in pairs] + found[
            len(found) & ~1 :
        ]
    return found[0]

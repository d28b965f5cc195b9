"""Internet checksums (RFC 1071) as trees of adders."""

from amaranth.hdl import Const, Signal, Value

from hw.stream.reduction import tree_sum

__all__ = ["fold_carries", "sum_halves", "sums_of_parts"]

PART_BYTES = 16
"""Bytes that are summed in one cycle, before the parts of a word are."""


def sum_halves(word: Value, first: int, end: int) -> Value:
    """Return the plain sum of the 16-bit halves of `word` from byte `first` to before byte `end`.

    In each half the first byte is the lower one. An Internet checksum does not depend on the order of bytes (RFC 1071,
    section 2): no bytes are swapped here, and the complement of such a sum goes into a frame as it is.
    """
    halves = [word[8 * k : 8 * k + 16] for k in range(first, end, 2)]
    return tree_sum(halves) if halves else Const(0, 1)


def sums_of_parts(word: Value) -> list[Value]:
    """Return the `sum_halves` of each `PART_BYTES` of `word`. To add them up is for a later cycle."""
    end = len(word) // 8
    return [sum_halves(word, first, min(first + PART_BYTES, end)) for first in range(0, end, PART_BYTES)]


def fold_carries(m, total: Value) -> Value:
    """Return the 16-bit ones' complement sum of which `total`, at most 32 bits, is the plain sum: carries are added
    in."""
    once = Signal(17)
    m.d.comb += once.eq(total[:16] + total[16:])
    return (once[:16] + once[16:])[:16]

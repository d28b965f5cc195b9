"""Internet checksums (RFC 1071) as adder trees."""

from amaranth.hdl import Const

__all__ = ["sum_halves"]


def sum_halves(word, first: int, end: int):
    """Plain sum of the 16-bit halves of `word` from byte `first` up to byte `end`, each with its first byte lowest.

    What an Internet checksum comes to does not depend on the order of bytes (RFC 1071, section 2): nothing is swapped
    here, and a complement made of the sum goes into a frame as it is.
    """
    halves = [word[8 * k : 8 * k + 16] for k in range(first, end, 2)]
    while len(halves) > 1:
        halves = [a + b for a, b in zip(halves[::2], halves[1::2], strict=False)] + halves[len(halves) & ~1 :]
    return halves[0] if halves else Const(0, 1)

"""Format `window64`: arrays of float32 elements to 64-bit integers and back.

Promises the same bits as exact fractions: a term is x * 2^F rounded to the nearest integer, ties to even; a result is
sum * 2^-F rounded to the nearest float32, ties to even, subnormals included, zero as +0, overflow as an infinity.

The model computes in float64, whose 53 bits make every step but one exact; the gateware shifts integers.
"""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["from_fixed", "to_fixed", "to_float64"]

_EXACT_BITS = 53
"""Integers below 2^53 are float64 numbers."""
_EXCESS_BITS = 64 - _EXACT_BITS


def to_fixed(values_u32: ArrayLike, fraction: int, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return terms as int64, which of them are rejected, and which non-zero ones became 0.

    An element whose biased exponent is at least `limit` is rejected; its term is 0.
    """
    values = np.asarray(values_u32, dtype=np.uint32)
    rejected = (values >> 23 & 0xFF) >= min(limit, 255)
    accepted = np.where(rejected, np.uint32(0), values).view(np.float32).astype(np.float64)
    terms = np.rint(np.ldexp(accepted, fraction)).astype(np.int64)
    return terms, rejected, (accepted != 0) & (terms == 0)


def to_float64(sums: ArrayLike, fraction: int) -> np.ndarray:
    """Return sums * 2^-fraction as float64, rounded to odd.

    A sum too long for float64 is cut to its upper 53 bits, the last of them set if anything was lost. That bit is far
    below the last one of a narrower format, so one rounding of this number to such a format sees which side of a tie
    the sum is on. (Boldo, Melquiond: Emulation of FMA and correctly rounded sums, IEEE ToC 2008.)
    """
    sums = np.asarray(sums, dtype=np.int64)
    lost = (sums & ((1 << _EXCESS_BITS) - 1)) != 0
    upper = (sums >> _EXCESS_BITS) | lost
    is_short = sums == np.clip(sums, -(1 << _EXACT_BITS), 1 << _EXACT_BITS)
    wide = np.where(is_short, sums.astype(np.float64), np.ldexp(upper.astype(np.float64), _EXCESS_BITS))
    return np.ldexp(wide, -fraction)


def from_fixed(sums: ArrayLike, fraction: int) -> np.ndarray:
    """Return the float32 bit patterns nearest to sums * 2^-fraction."""
    with np.errstate(over="ignore"):
        return to_float64(sums, fraction).astype(np.float32).view(np.uint32)

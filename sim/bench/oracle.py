"""Exact arithmetic on float32 patterns, by Python's integers and fractions and by MPFR, with which models and gateware
are compared. Nothing here is vectorised or shared with them."""

import struct
from fractions import Fraction

import gmpy2
import numpy as np

from iswitch.wire import Format

__all__ = ["INF", "NAN", "exact", "mpfr_add", "nearest", "nearest_half", "patterns", "window64_sum"]

NAN, INF = 0x7FC00000, 0x7F800000
BINARY32 = gmpy2.ieee(32)
"""MPFR's context of 24 bits of precision, binary32's range of exponents, and subnormals."""


def exact(pattern: int) -> Fraction:
    """Return the value of a finite float32 pattern."""
    exponent, mantissa = pattern >> 23 & 0xFF, pattern & 0x7FFFFF
    magnitude = Fraction(mantissa | (exponent != 0) << 23) * Fraction(2) ** (max(exponent, 1) - 150)
    return -magnitude if pattern >> 31 else magnitude


def nearest(value: Fraction) -> int:
    """Return the float32 pattern nearest to a fraction, ties to even."""
    sign, value = (1 << 31 if value < 0 else 0), abs(value)
    if not value:
        return 0
    log2 = value.numerator.bit_length() - value.denominator.bit_length()  # right or one too low
    exponent = max(1, log2 + 126)
    if value * Fraction(2) ** (150 - exponent) >= 1 << 24:
        exponent += 1
    mantissa = round(value * Fraction(2) ** (150 - exponent))
    return sign | min((exponent - 1 << 23) + mantissa, INF)


def window64_sum(numbers: list[int], fraction: int) -> int:
    """Return the pattern of the sum of float32 patterns in range, each rounded to a multiple of 2^-fraction and the sum
    rounded once."""
    return nearest(sum(round(exact(number) * Fraction(2) ** fraction) for number in numbers) * Fraction(2) ** -fraction)


HALF = {
    Format.BF16: gmpy2.context(precision=8, emax=128, emin=-132, subnormalize=True, round=gmpy2.RoundToNearest),
    Format.FP16: gmpy2.ieee(16),
}
"""MPFR's contexts of bfloat16 and binary16."""


def nearest_half(value: Fraction, format: Format) -> int:
    """Return the pattern of a half-width format that MPFR finds nearest to a fraction, ties to even."""
    with gmpy2.context(HALF[format]):
        rounded = float(gmpy2.mpfr(gmpy2.mpq(value.numerator, value.denominator)))
    if format == Format.FP16:
        return int.from_bytes(struct.pack("<e", rounded) if abs(rounded) < 2**16 else _infinite16(rounded), "little")
    return int.from_bytes(struct.pack("<f", rounded), "little") >> 16


def _infinite16(value: float) -> bytes:
    return b"\0\x7c" if value > 0 else b"\0\xfc"


def mpfr_add(a: int, b: int) -> int:
    """Return MPFR's sum of two float32 patterns, rounded once to binary32; every NaN is `NAN`."""
    # A Python float holds every binary32 number, so both conversions are exact.
    x, y = (gmpy2.mpfr(struct.unpack("<f", struct.pack("<I", pattern))[0], 24, BINARY32) for pattern in (a, b))
    total = BINARY32.add(x, y)
    return NAN if gmpy2.is_nan(total) else int.from_bytes(struct.pack("<f", float(total)), "little")


def patterns(rng: np.random.Generator, count: int, low: int = 0, high: int = 256) -> np.ndarray:
    """Return random float32 patterns, u32, with biased exponents in [low, high), many with few mantissa bits, for
    ties."""
    exponent = rng.integers(low, high, count)
    mantissa = rng.integers(0, 1 << 23, count) & -1 << rng.integers(0, 24, count)
    return (rng.integers(0, 2, count) << 31 | exponent << 23 | mantissa).astype(np.uint32)

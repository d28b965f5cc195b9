"""Exact arithmetic on float32 patterns, by Python's integers and fractions and by Berkeley SoftFloat: what models and gateware are
measured against. Nothing here is vectorised or shared with them."""

from fractions import Fraction

import numpy as np
import softfloat

__all__ = ["INF", "NAN", "exact", "nearest", "patterns", "softfloat_add", "window64_sum"]

NAN, INF = 0x7FC00000, 0x7F800000


def exact(pattern: int) -> Fraction:
    """Value of a finite float32 pattern."""
    exponent, mantissa = pattern >> 23 & 0xFF, pattern & 0x7FFFFF
    magnitude = Fraction(mantissa | (exponent != 0) << 23) * Fraction(2) ** (max(exponent, 1) - 150)
    return -magnitude if pattern >> 31 else magnitude


def nearest(value: Fraction) -> int:
    """float32 pattern nearest to a fraction, ties to even."""
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
    """Pattern of the sum of float32 patterns in range, each rounded to a multiple of 2^-fraction and the sum rounded once."""
    return nearest(sum(round(exact(number) * Fraction(2) ** fraction) for number in numbers) * Fraction(2) ** -fraction)


def softfloat_add(a: int, b: int) -> int:
    """Berkeley SoftFloat's sum, with our one NaN."""
    x, y = softfloat.float32_t(), softfloat.float32_t()
    x.v, y.v = a, b
    total = softfloat.f32_add(x, y).v
    return NAN if total & 0x7FFFFFFF > INF else total


def patterns(rng: np.random.Generator, count: int, low: int = 0, high: int = 256) -> np.ndarray:
    """Random float32 patterns, u32, with biased exponents in [low, high), many with few mantissa bits, for ties."""
    exponent = rng.integers(low, high, count)
    mantissa = rng.integers(0, 1 << 23, count) & -1 << rng.integers(0, 24, count)
    return (rng.integers(0, 2, count) << 31 | exponent << 23 | mantissa).astype(np.uint32)

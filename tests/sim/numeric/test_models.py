"""The numeric golden models against exact oracles: Python integers, fractions, Berkeley SoftFloat."""

from fractions import Fraction

import numpy as np
import pytest
import softfloat
from iswitch.wire import Format

from sim.model.numeric import fp32, lane, window64

FRACTIONS = (-126, -70, -1, 0, 1, 24, 44, 58, 100, 125, 126, 127, 140, 148, 149)
NAN, INF = 0x7FC00000, 0x7F800000
SPECIAL = [0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000, 0x3F800000, 0x3F800001, 0x3FFFFFFF,
           0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF, INF, INF + 1, NAN, 0x7FFFFFFF]
SPECIAL += [pattern | 1 << 31 for pattern in SPECIAL]


def exact(pattern: int) -> Fraction:
    """Value of a finite float32 pattern."""
    exponent, mantissa = pattern >> 23 & 0xFF, pattern & 0x7FFFFF
    magnitude = Fraction(mantissa | (exponent != 0) << 23) * Fraction(2) ** (max(exponent, 1) - 150)
    return -magnitude if pattern >> 31 else magnitude


def nearest(value: Fraction) -> int:
    """float32 pattern nearest to a fraction, ties to even, found by trying exponents from below."""
    sign, value = (1 << 31 if value < 0 else 0), abs(value)
    exponent = 1
    while exponent < 255 and value * Fraction(2) ** (150 - exponent) >= 1 << 24:
        exponent += 1
    if exponent == 255:
        return sign | INF
    mantissa = round(value * Fraction(2) ** (150 - exponent))
    return sign | min((exponent - 1 << 23) + mantissa, INF)


def patterns(rng, count, low=0, high=256):
    """Random float32 patterns with biased exponents in [low, high), many with few mantissa bits, so that ties happen."""
    exponent = rng.integers(low, high, count)
    mantissa = rng.integers(0, 1 << 23, count)
    mantissa &= -1 << rng.integers(0, 24, count)
    return (rng.integers(0, 2, count) << 31 | exponent << 23 | mantissa).astype(np.uint32)


def softfloat_add(a: int, b: int) -> int:
    """Berkeley SoftFloat's sum, with our one NaN."""
    operands = [softfloat.float32_t() for _ in range(2)]
    operands[0].fromBits(a)
    operands[1].fromBits(b)
    total = softfloat.f32_add(*operands).toBits()
    return NAN if total & 0x7FFFFFFF > INF else total


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_term_is_nearest_integer_to_scaled_number(fraction):
    rng, limit = np.random.default_rng(fraction + 500), lane.exponent_limit(fraction)
    near = [e << 23 | m for e in (limit - 1, limit, limit + 1) if 0 <= e <= 255 for m in (0, 1, 0x7FFFFF)]
    small = patterns(rng, 400, max(0, 120 - fraction), max(1, min(limit, 131 - fraction + 24)))
    values = np.concatenate([patterns(rng, 200), small, np.array(SPECIAL + near, dtype=np.uint32)])
    terms, rejected, flushed = window64.to_fixed(values, fraction, limit)
    for value, term, is_rejected, is_flushed in zip(values.tolist(), terms.tolist(), rejected, flushed):
        infinite = value >> 23 & 0xFF == 255
        assert is_rejected == (infinite or abs(exact(value)) >= Fraction(2) ** (58 - fraction))
        expected = 0 if is_rejected else round(exact(value) * Fraction(2) ** fraction)
        assert term == expected
        assert is_flushed == (not is_rejected and expected == 0 and value & 0x7FFFFFFF != 0)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_result_is_nearest_float_to_scaled_sum(fraction):
    rng = np.random.default_rng(fraction + 900)
    sums = {0, 1, -1, 2**63 - 1, -(2**63), -(2**63) + 1}
    sums |= {s * ((1 << p) + d) for p in range(63) for d in (-1, 0, 1) for s in (1, -1)}
    ties = rng.integers(1 << 23, 1 << 24, 200) * 2 + 1
    sums |= {int(t) * 2**int(p) + int(d) for t, p, d in zip(ties, rng.integers(0, 38, 200), rng.integers(-1, 2, 200))}
    sums |= {int(x) >> int(n) for x, n in zip(rng.integers(-(2**63), 2**63 - 1, 300), rng.integers(0, 63, 300))}
    sums = sorted(sums)
    results = window64.from_fixed(np.array(sums, dtype=np.int64), fraction)
    assert results.tolist() == [nearest(Fraction(total) * Fraction(2) ** -fraction) for total in sums]


def test_fp32_addition_is_softfloats():
    rng = np.random.default_rng(1)
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL]
    a = np.concatenate([np.array([p[0] for p in pairs], dtype=np.uint32), patterns(rng, 4000)])
    near = np.clip((a[len(pairs):] >> 23 & 0xFF).astype(np.int64) + rng.integers(-27, 28, 4000), 0, 255)
    close = (patterns(rng, 4000) & 0x807FFFFF) | (near << 23).astype(np.uint32)
    b = np.concatenate([np.array([p[1] for p in pairs], dtype=np.uint32), close])
    assert fp32.add(a, b).tolist() == [softfloat_add(x, y) for x, y in zip(a.tolist(), b.tolist())]

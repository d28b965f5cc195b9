"""Half-width elements: all 65,536 patterns of both formats, and sums against MPFR, struct and exact fractions."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iswitch.golden.numeric import half, lane
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS
from sim.bench.oracle import exact, nearest_half

HALF = (Format.BF16, Format.FP16)
ALL = np.arange(1 << 16, dtype=np.uint16)
INFINITY = {Format.BF16: 0x7F80, Format.FP16: 0x7C00}
FRACTIONS = {Format.BF16: [-126, -70, 0, 24, 44, 100, 126, 133, 134, 140, 149], Format.FP16: [24, 33, 42]}


def value(format, pattern):
    """Return the exact value of a finite element, by struct or as the upper half of a binary32."""
    if format == Format.BF16:
        return exact(pattern << 16)
    return Fraction(struct.unpack("<e", struct.pack("<H", pattern))[0])


@pytest.mark.parametrize("format", HALF)
def test_widening_changes_no_value(format):
    widened = half.widen(format, ALL)
    for pattern, wide in zip(ALL.tolist(), widened.tolist(), strict=True):
        magnitude, sign = pattern & 0x7FFF, pattern >> 15
        assert wide >> 31 == sign
        if magnitude > INFINITY[format]:
            assert wide & 0x7FFFFFFF > 0x7F800000
        elif magnitude == INFINITY[format]:
            assert wide & 0x7FFFFFFF == 0x7F800000
        else:
            assert exact(wide) == value(format, pattern)


@pytest.mark.parametrize("format", HALF)
def test_an_element_alone_leaves_as_it_came(format):
    """Where the fraction bits hold an element exactly, rounding must give the element; -0 becomes +0. Each finite
    element is exact with one of these fractions."""
    seen = set()
    for fraction in (149, 110, 70, 30, -10, -50, -70) if format == Format.BF16 else (24, 42):
        limit, wide = lane.exponent_limit(fraction), half.widen(format, ALL)
        in_range = ALL[(wide >> 23 & 0xFF) < limit]
        terms = np.ldexp(half.widen(format, in_range).view(np.float32).astype(np.float64), fraction)
        exact_ones = in_range[terms == np.rint(terms)]
        stored, flushed = lane.accumulate(
            format, None, exact_ones, fraction=fraction, limit=limit, include=True, first=True
        )
        result = lane.result(format, stored, fraction)
        assert flushed == 0 and result.dtype == np.uint16
        assert result.tolist() == np.where(exact_ones == 0x8000, 0, exact_ones).tolist()
        seen |= set(exact_ones.tolist())
    assert seen == set(ALL[INFINITY[format] > (ALL & 0x7FFF)].tolist())


def sums_near_ties(rng):
    """Sums around every power of two, halfway between neighbours of 8 and 11 bits, and one off."""
    sums = {0, 1, -1, 2**63 - 1, -(2**63), -(2**63) + 1}
    sums |= {s * ((1 << p) + d) for p in range(63) for d in (-1, 0, 1) for s in (1, -1)}
    for bits in (8, 11):
        odd = rng.integers(1 << bits - 1, 1 << bits, 150) * 2 + 1
        shifts, off = rng.integers(0, 62 - bits, 150), rng.integers(-1, 2, 150)
        sums |= {int(t) * 2 ** int(p) + int(d) for t, p, d in zip(odd, shifts, off, strict=True)}
        sums |= {-((int(t) << int(p)) + int(d)) for t, p, d in zip(odd, shifts, off, strict=True)}
    sums |= {int(x) >> int(n) for x, n in zip(rng.integers(-(2**63), 2**63 - 1, 300), rng.integers(0, 63, 300))}
    return sorted(sums)


@pytest.mark.parametrize(("format", "fraction"), [(format, f) for format in HALF for f in FRACTIONS[format]])
def test_a_result_is_the_element_nearest_to_the_scaled_sum(format, fraction):
    sums = sums_near_ties(np.random.default_rng(fraction + 200))
    results = half.narrow(format, np.array(sums, np.int64), fraction)
    assert results.tolist() == [nearest_half(Fraction(total) * Fraction(2) ** -fraction, format) for total in sums]


def test_rounding_happens_once():
    """1 + 2^-8 + 2^-30 lies above a tie of bfloat16. Rounded to binary32 first, it would be the tie, and then 1."""
    assert half.narrow(Format.BF16, [(1 << 40) + (1 << 32) + (1 << 10)], 40).tolist() == [0x3F81]
    assert half.narrow(Format.BF16, [(1 << 40) + (1 << 32)], 40).tolist() == [0x3F80]
    assert half.narrow(Format.FP16, [(1 << 40) + (1 << 29) + 1], 40).tolist() == [0x3C01]
    assert half.narrow(Format.FP16, [(1 << 40) + (1 << 29)], 40).tolist() == [0x3C00]


def test_zero_is_positive_and_a_negative_sum_that_rounds_to_it_is_not():
    assert half.narrow(Format.BF16, [0, -1, 1], 149).tolist() == [0, 0x8000, 0]


@pytest.mark.parametrize("format", HALF)
def test_poison_leaves_as_the_quiet_nan(format):
    one = {Format.BF16: 0x3F80, Format.FP16: 0x3C00}[format]
    stored, _ = lane.accumulate(
        format,
        None,
        np.array([INFINITY[format], INFINITY[format] + 1, one], np.uint16),
        fraction=40,
        limit=lane.exponent_limit(40),
        include=True,
        first=True,
    )
    nan = {Format.BF16: 0x7FC0, Format.FP16: 0x7E00}[format]
    assert lane.result(format, stored, 40).tolist() == [nan, nan, one]


@pytest.mark.parametrize("format", HALF)
def test_a_contribution_is_tainted_by_exactly_the_elements_that_it_may_not_hold(format):
    fraction, exponent = 42, FORMATS[format].exponent
    mantissas = (1 << exponent.start) - 1
    for pattern in ALL[np.isin(ALL & mantissas, (0, 1, mantissas))].tolist():
        is_finite = pattern & 0x7FFF < INFINITY[format]
        in_range = is_finite and abs(value(format, pattern)) < Fraction(2) ** (58 - fraction)
        assert lane.is_tainted(format, np.array([0, pattern], np.uint16), lane.exponent_limit(fraction)) != in_range
        assert format == Format.BF16 or in_range == is_finite


@given(st.data())
def test_any_half_width_sum_is_the_exact_sum_rounded_once_in_any_order(data):
    format = data.draw(st.sampled_from(HALF), "format")
    fraction = data.draw(st.sampled_from(FRACTIONS[format]), "fraction")
    limit, exponent = lane.exponent_limit(fraction), FORMATS[format].exponent
    accepted = st.builds(
        lambda sign, exponent, mantissa, start: sign << 15 | exponent << start | mantissa,
        st.integers(0, 1),
        st.integers(
            0, limit - 1 if format == Format.BF16 and limit < 255 else INFINITY[format] // (1 << exponent.start) - 1
        ),
        st.integers(0, (1 << exponent.start) - 1),
        st.just(exponent.start),
    )
    column = data.draw(st.lists(accepted, min_size=1, max_size=32), "contributions")
    total = sum(round(value(format, pattern) * Fraction(2) ** fraction) for pattern in column)
    for order in (column, data.draw(st.permutations(column), "order")):
        stored = None
        for pattern in order:
            payload = np.array([pattern], np.uint16)
            stored, _ = lane.accumulate(
                format, stored, payload, fraction=fraction, limit=limit, include=True, first=stored is None
            )
        expected = nearest_half(Fraction(total) * Fraction(2) ** -fraction, format)
        assert lane.result(format, stored, fraction).tolist() == [expected]


@pytest.mark.parametrize("format", HALF)
def test_an_installed_result_leaves_as_it_came(format):
    assert lane.installed(format, lane.install(ALL)).tolist() == ALL.tolist()

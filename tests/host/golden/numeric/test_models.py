"""The numeric golden models against exact oracles: Python integers, fractions, MPFR."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iswitch.golden.numeric import fp32, lane, window64
from iswitch.wire import Format
from sim.bench.oracle import INF, NAN, exact, mpfr_add, nearest, patterns, window64_sum

FRACTIONS = [-126, -70, -1, 0, 1, 24, 44, 58, 100, 125, 126, 127, 140, 148, 149]
SPECIAL = [
    0,
    1,
    2,
    3,
    0x7FFFFF,
    0x800000,
    0x800001,
    0xFFFFFF,
    0x1000000,
    0x3F800000,
    0x3F800001,
    0x3FFFFFFF,
    0x4B000000,
    0x4B7FFFFF,
    0x4B800000,
    0x7F000000,
    0x7F7FFFFE,
    0x7F7FFFFF,
    INF,
    INF + 1,
    NAN,
    0x7FFFFFFF,
]
SPECIAL += [pattern | 1 << 31 for pattern in SPECIAL]


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
    sums |= {int(t) * 2 ** int(p) + int(d) for t, p, d in zip(ties, rng.integers(0, 38, 200), rng.integers(-1, 2, 200))}
    sums |= {int(x) >> int(n) for x, n in zip(rng.integers(-(2**63), 2**63 - 1, 300), rng.integers(0, 63, 300))}
    sums = sorted(sums)
    results = window64.from_fixed(np.array(sums, dtype=np.int64), fraction)
    assert results.tolist() == [nearest(Fraction(total) * Fraction(2) ** -fraction) for total in sums]


def test_fp32_addition_is_mpfrs():
    rng = np.random.default_rng(1)
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL]
    a = np.concatenate([np.array([p[0] for p in pairs], dtype=np.uint32), patterns(rng, 4000)])
    near = np.clip((a[len(pairs) :] >> 23 & 0xFF).astype(np.int64) + rng.integers(-27, 28, 4000), 0, 255)
    close = (patterns(rng, 4000) & 0x807FFFFF) | (near << 23).astype(np.uint32)
    b = np.concatenate([np.array([p[1] for p in pairs], dtype=np.uint32), close])
    assert fp32.add(a, b).tolist() == [mpfr_add(x, y) for x, y in zip(a.tolist(), b.tolist())]


def test_fp32_zero_sum_is_positive_unless_both_are_negative():
    zero, minus_zero, one, minus_one = 0, 1 << 31, 0x3F800000, 0xBF800000
    sums = fp32.add([one, minus_one, zero, minus_zero, minus_zero], [minus_one, one, minus_zero, zero, minus_zero])
    assert sums.tolist() == [0, 0, 0, 0, minus_zero]


def fold(format, payloads, fraction=44, mode=True):
    """Result of contributions that arrive in the order given."""
    stored, limit = None, lane.exponent_limit(fraction)
    for k, payload in enumerate(payloads):
        stored, _ = lane.accumulate(format, stored, payload, fraction=fraction, limit=limit, include=mode, first=k == 0)
    return lane.result(format, stored, fraction)


@pytest.mark.parametrize("fraction", [-126, 0, 44, 126, 149])
def test_window64_sum_is_the_rounded_exact_sum_in_any_order(fraction):
    rng, limit = np.random.default_rng(7), lane.exponent_limit(fraction)
    payloads = np.stack([patterns(rng, 40, max(0, limit - 60), limit) for _ in range(32)])
    payloads[:, 0] = (limit - 1 << 23) | 0x7FFFFF  # as large as it can get
    payloads[:, 1] = (limit - 1 << 23) | 0x807FFFFF
    results = fold(Format.WINDOW64, payloads, fraction)
    expected = [window64_sum(column, fraction) for column in payloads.T.tolist()]
    assert results.tolist() == expected
    assert fold(Format.WINDOW64, rng.permutation(payloads), fraction).tolist() == expected


PATTERNS = st.integers(0, (1 << 32) - 1) | st.sampled_from(SPECIAL)
"""binary32 patterns, with the special ones often among them."""


@given(PATTERNS, PATTERNS)
def test_any_fp32_addition_is_mpfrs(a, b):
    assert fp32.add([a], [b]).tolist() == [mpfr_add(a, b)]


@given(st.data())
def test_any_window64_sum_is_the_rounded_exact_sum_in_any_order(data):
    fraction = data.draw(st.sampled_from(FRACTIONS), "fraction")
    limit = lane.exponent_limit(fraction)
    in_range = st.builds(
        lambda sign, exponent, mantissa: sign << 31 | exponent << 23 | mantissa,
        st.integers(0, 1),
        st.integers(0, max(limit - 1, 0)),
        st.integers(0, (1 << 23) - 1),
    )
    column = data.draw(st.lists(in_range, min_size=1, max_size=32), "contributions")
    expected = [window64_sum(column, fraction)]
    for order in (column, data.draw(st.permutations(column), "order")):
        assert fold(Format.WINDOW64, [[pattern] for pattern in order], fraction).tolist() == expected


def test_int32_sum_is_modulo_two_to_the_32():
    payloads = np.random.default_rng(8).integers(0, 1 << 32, (32, 50), dtype=np.uint32)
    assert fold(Format.INT32, payloads).tolist() == [sum(map(int, column)) & 0xFFFFFFFF for column in payloads.T]


def test_fp32_sum_follows_the_order_of_arrival():
    big, small = 0x4B800000, 0x3F800000  # 2^24 and 1
    assert fold(Format.FP32, [[big], [small], [small]]).tolist() == [big]
    assert fold(Format.FP32, [[small], [small], [big]]).tolist() == [big + 1]


def test_fp32_first_term_passes_with_its_sign_and_one_nan():
    assert fold(Format.FP32, [[1 << 31, 0xFF800001, 0x80000001]]).tolist() == [1 << 31, NAN, 0x80000001]


def test_poison_stays_and_touches_one_element():
    payloads = [[0x3F800000, 0x3F800000], [NAN, 0x3F800000], [0x3F800000, 0x3F800000]]
    assert fold(Format.WINDOW64, payloads).tolist() == [NAN, 0x40400000]


def tree_fold(format, payloads, parts, fraction=44):
    """Result of the same contributions by way of partial sums, one for each of `parts` (lists of indices)."""
    stored, limit = None, lane.exponent_limit(fraction)
    for n, part in enumerate(parts):
        below = None
        for k, index in enumerate(part):
            below, _ = lane.accumulate(
                format, below, payloads[index], fraction=fraction, limit=limit, include=True, first=k == 0
            )
        stored = lane.accumulate_uplink(format, stored, lane.uplink(format, below), first=n == 0)
    return lane.result(format, stored, fraction)


@pytest.mark.parametrize(
    "parts", [[range(32)], [range(16), range(16, 32)], [range(k, 32, 7) for k in range(7)], [[k] for k in range(32)]]
)
@pytest.mark.parametrize("fraction", [-126, 0, 44, 126, 149])
def test_partial_sums_change_no_bit(parts, fraction):
    rng, limit = np.random.default_rng(9), lane.exponent_limit(fraction)
    payloads = np.stack([patterns(rng, 40, max(0, limit - 60), limit) for _ in range(32)])
    payloads[:, 0] = (limit - 1 << 23) | 0x7FFFFF  # as large as it can get
    payloads[:, 1] = (limit - 1 << 23) | 0x807FFFFF  # as near to the mark of poison
    payloads[5, 2] = NAN
    assert (
        tree_fold(Format.WINDOW64, payloads, parts, fraction).tolist()
        == fold(Format.WINDOW64, payloads, fraction).tolist()
    )
    assert tree_fold(Format.INT32, payloads, parts).tolist() == fold(Format.INT32, payloads).tolist()


def test_an_installed_result_leaves_as_it_came():
    numbers = np.array([0, 1 << 31, NAN, INF, 0xFFFFFFFF, 0x3F800000], dtype=np.uint32)
    assert lane.installed(Format.FP32, lane.install(numbers)).tolist() == numbers.tolist()


@pytest.mark.parametrize("format", [Format.WINDOW64, Format.FP32, Format.INT32])
def test_a_sum_of_no_member_is_zero_and_excluded_contributions_change_nothing(format):
    payload = np.array([NAN, 0x3F800000, 0xC0000000], dtype=np.uint32)
    options = {"fraction": 44, "limit": lane.exponent_limit(44)}
    zeros, flushed = lane.accumulate(format, None, payload, include=False, first=True, **options)
    assert lane.result(format, zeros, 44).tolist() == [0, 0, 0]
    assert flushed == 0
    once, _ = lane.accumulate(format, zeros, payload[1:].repeat(2)[:3], include=True, first=False, **options)
    again, _ = lane.accumulate(format, once, payload, include=False, first=False, **options)
    assert again.accumulator.tolist() == once.accumulator.tolist()
    assert again.poison.tolist() == once.poison.tolist()


def test_taint_is_what_the_format_cannot_sum():
    for format, payload, limit, tainted in (
        (Format.WINDOW64, [0, 0x3F800000], 127, True),
        (Format.WINDOW64, [0, 0x3F7FFFFF], 127, False),
        (Format.WINDOW64, [0xFF800000], 255, True),
        (Format.WINDOW64, [0xFF7FFFFF], 255, False),
        (Format.FP32, [0, 0xFF7FFFFF], 127, False),
        (Format.FP32, [INF, 0], 127, True),
        (Format.FP32, [NAN], 0, True),
        (Format.INT32, [NAN, INF], 0, False),
        (Format.WINDOW64, [], 0, False),
    ):
        assert lane.is_tainted(format, payload, limit) is tainted


def test_exponent_limit_is_the_first_exponent_out_of_range():
    for fraction in range(-126, 150):
        limit, bound = lane.exponent_limit(fraction), Fraction(2) ** (58 - fraction)
        assert exact((limit - 1 << 23) | 0x7FFFFF) < bound
        assert limit == 255 or exact(limit << 23) >= bound


@pytest.mark.parametrize("fraction", [-127, 150])
def test_fraction_wrong(fraction):
    with pytest.raises(ValueError, match="exponent_limit fraction must be -126 to 149"):
        lane.exponent_limit(fraction)


@pytest.mark.parametrize("format", [0, Format.FIXED64, 7])
def test_format_wrong(format):
    stored = lane.Stored(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool))
    for call in (
        lambda: lane.is_tainted(format, [0], 1),
        lambda: lane.result(format, stored, 0),
        lambda: lane.accumulate(format, stored, [0], fraction=0, limit=185, include=True, first=False),
    ):
        with pytest.raises(ValueError, match=r"format must be WINDOW64|is not a valid Format"):
            call()


def test_stored_wrong():
    stored = lane.Stored(np.zeros(2, dtype=np.int64), np.zeros(2, dtype=bool))
    for wrong in (None, stored):
        with pytest.raises(ValueError, match="as long as the payload"):
            lane.accumulate(Format.INT32, wrong, [0], fraction=0, limit=185, include=True, first=False)

"""The conversions of half-width elements in C, at each level of vector instructions, beside the golden model."""

import ctypes

import numpy as np
import pytest

from iswitch.golden.numeric import half, lane
from iswitch.wire import Format
from sim.bench.native_part import USABLE_LEVELS, compile_part

ALL = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(scope="module", params=USABLE_LEVELS)
def compiled(request, tmp_path_factory):
    return compile_part(tmp_path_factory.mktemp("half"), "half.c", request.param)


def rounded(compiled, format, fraction, sums, poison=None):
    sums, result = np.ascontiguousarray(sums, np.int64), np.zeros(len(sums), np.uint16)
    poison = np.zeros(len(sums), np.uint8) if poison is None else poison
    compiled.round_to_half(
        ctypes.c_uint32(format),
        ctypes.c_int(fraction),
        sums.ctypes.data_as(ctypes.c_void_p),
        poison.ctypes.data_as(ctypes.c_void_p),
        result.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_size_t(len(sums)),
    )
    return result


@pytest.mark.parametrize("format", [Format.BF16, Format.FP16])
def test_every_pattern_is_widened_as_the_model_does(compiled, format):
    wide = np.zeros(len(ALL), np.uint32)
    compiled.widen_elements(
        ctypes.c_uint32(format),
        ALL.ctypes.data_as(ctypes.c_void_p),
        wide.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_size_t(len(ALL)),
    )
    wanted = half.widen(format, ALL)
    is_nan = (wanted & 0x7FFFFFFF) > 0x7F800000
    assert (wide[~is_nan] == wanted[~is_nan]).all()
    assert ((wide[is_nan] & 0x7FFFFFFF) >= 0x7F800000).all()


@pytest.mark.parametrize(
    ("format", "fraction"),
    [(Format.BF16, f) for f in (-126, -70, 0, 44, 133, 134, 149)] + [(Format.FP16, f) for f in (24, 33, 42)],
)
@pytest.mark.parametrize("bits", [20, 51, 52, 64])
def test_sums_are_rounded_as_the_model_does(compiled, format, fraction, bits):
    rng = np.random.default_rng(bits)
    sums = rng.integers(-(1 << bits - 1), (1 << bits - 1) - 1, 20_000, endpoint=True) >> rng.integers(0, bits, 20_000)
    precision = 8 if format == Format.BF16 else 11
    ties = (rng.integers(1 << precision, 2 << precision, 2_000) | 1) << rng.integers(0, bits - precision - 2, 2_000)
    sums = np.concatenate([sums, ties, -ties, ties + 1, ties - 1, [0, -1, 1, -(1 << bits - 1), (1 << bits - 1) - 1]])
    assert (rounded(compiled, format, fraction, sums) == half.narrow(format, sums, fraction)).all()
    poison = rng.integers(0, 2, len(sums)).astype(np.uint8)
    wanted = lane.result(format, lane.Stored(sums, poison.astype(bool)), fraction)
    assert (rounded(compiled, format, fraction, sums, poison) == wanted).all()

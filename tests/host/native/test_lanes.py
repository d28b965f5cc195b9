"""The result of only one contribution in C, at each level of vector instructions, beside the golden model."""

import ctypes

import numpy as np
import pytest

from iswitch.golden.numeric import lane
from iswitch.wire import Format
from sim.bench.native_part import USABLE_LEVELS, compile_part


class Terms(ctypes.Structure):
    """`struct terms` of native/lanes.h."""

    _fields_ = [
        ("format", ctypes.c_int),
        ("fraction", ctypes.c_int),
        ("exponent", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
    ]


@pytest.fixture(scope="module", params=USABLE_LEVELS)
def compiled(request, tmp_path_factory):
    found = compile_part(tmp_path_factory.mktemp("lanes"), "lanes.c", request.param)
    found.rounds_alone.argtypes = [Terms]
    found.round_alone.argtypes = [Terms, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    found.round_alone.restype = ctypes.c_uint32
    return found


def elements_about(fraction, limit):
    """Elements of all magnitudes below the limit, and most of those about a unit and about 2^23 units; also ties."""
    rng = np.random.default_rng(fraction + 1000)
    units = rng.integers(0, 1 << 26, 6_000) >> rng.integers(0, 26, 6_000)
    with np.errstate(over="ignore"):
        near = np.ldexp((units / 2).astype(np.float64), -fraction).astype(np.float32).view(np.uint32)
    anywhere = rng.integers(0, 1 << 31, 6_000, np.uint32)
    bits = np.concatenate([near, near + np.uint32(1), near - np.uint32(1), anywhere, [0, 1, 0x7FFFFF, 0x800000]])
    bits = (bits & 0x7FFFFFFF).astype(np.uint32)
    bits = bits[bits >> 23 < limit]
    return bits | rng.integers(0, 2, bits.size).astype(np.uint32) << 31


@pytest.mark.parametrize("fraction", [-104, -103, -30, 0, 23, 30, 44, 126, 148, 149])
def test_the_result_of_one_contribution_is_that_of_its_sum(compiled, fraction):
    limit = lane.exponent_limit(fraction)
    elements = elements_about(fraction, limit)
    terms = Terms(Format.WINDOW64, fraction, int((elements >> 23 & 0xFF).max()), limit)
    assert compiled.rounds_alone(terms)
    kept, result = np.zeros_like(elements), np.zeros_like(elements)
    total = compiled.round_alone(
        terms, elements.ctypes.data, kept.ctypes.data, result.ctypes.data, ctypes.c_size_t(elements.size)
    )

    def sum_of(terms):
        return lane.accumulate(Format.WINDOW64, None, terms, fraction=fraction, limit=limit, include=True, first=True)[
            0
        ]

    stored = sum_of(elements)
    assert (result == lane.result(Format.WINDOW64, stored, fraction)).all()
    assert (sum_of(kept).accumulator == stored.accumulator).all(), "the sums do not follow from what is kept"
    assert total == int(result.view(np.uint16).sum(dtype=np.uint64)) % 2**32


@pytest.mark.parametrize(
    ("format", "fraction", "exponent"),
    [("FP32", 30, 100), ("INT32", 30, 100), ("WINDOW64", -105, 100), ("WINDOW64", 30, 155)],
)
def test_sums_of_other_formats_and_of_rejected_terms_are_not_rounded_alone(compiled, format, fraction, exponent):
    assert not compiled.rounds_alone(Terms(Format[format], fraction, exponent, lane.exponent_limit(fraction)))

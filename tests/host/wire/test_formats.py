"""The descriptions of the number formats fit each other and the protocol's text."""

import numpy as np
import pytest

from iswitch.wire import Format
from iswitch.wire.formats import (
    FORMATS,
    FRACTION_MAX,
    FRACTION_MIN,
    JOB_FORMATS,
    Arithmetic,
    job_format,
    supported_formats,
)

INFINITIES = {Format.WINDOW64: 0x7F800000, Format.FP32: 0x7F800000, Format.BF16: 0x7F80, Format.FP16: 0x7C00}
"""IEEE 754; bfloat16 is the upper half of binary32."""


def test_every_format_has_a_description():
    assert set(FORMATS) == set(Format)


def test_the_formats_of_jobs_are_those_of_the_protocol():
    assert JOB_FORMATS == {"window64": 1, "fp32": 2, "int32": 3, "bf16": 5, "fp16": 6}


def test_a_switch_has_the_half_width_formats_or_not():
    assert supported_formats(half_width=True) == set(JOB_FORMATS.values())
    assert supported_formats(half_width=False) == {1, 2, 3}


@pytest.mark.parametrize("own", JOB_FORMATS.values())
def test_an_uplink_leads_back_to_the_jobs_format(own):
    assert job_format(FORMATS[own].uplink, own) == own
    assert job_format(own, own) == own
    assert job_format(Format.INT32, own) == Format.INT32


@pytest.mark.parametrize("format", JOB_FORMATS.values())
def test_the_exponent_is_that_of_the_element(format):
    """Infinity has all exponent bits and no other, and integers have no exponent."""
    description = FORMATS[format]
    if description.exponent is None:
        assert description.arithmetic is Arithmetic.INTEGER
        return
    infinity = INFINITIES[format]
    assert infinity == (1 << description.exponent.stop) - (1 << description.exponent.start)


@pytest.mark.parametrize("fraction", FORMATS[Format.FP16].fractions)
def test_no_finite_fp16_number_is_rounded_or_out_of_range_and_32_of_them_fit(fraction):
    finite = np.finfo(np.float16)
    assert (float(finite.smallest_subnormal) * 2.0**fraction).is_integer()
    assert float(finite.max) < 2.0 ** (58 - fraction)
    assert 32 * float(finite.max) * 2.0**fraction < 2**63


def test_the_fractions_of_fp16_are_all_of_which_that_is_true():
    finite, fractions = np.finfo(np.float16), FORMATS[Format.FP16].fractions
    assert not (float(finite.smallest_subnormal) * 2.0 ** (fractions.start - 1)).is_integer()
    assert float(finite.max) >= 2.0 ** (58 - fractions.stop)


def test_fraction_reaches_from_the_largest_to_the_smallest_float32():
    assert float(np.finfo(np.float32).smallest_subnormal) == 2.0**-FRACTION_MAX
    assert 2.0**-FRACTION_MIN < float(np.finfo(np.float32).max) < 2.0 ** (2 - FRACTION_MIN)

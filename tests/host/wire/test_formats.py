"""The descriptions of the number formats fit each other and the protocol's text."""

import numpy as np
import pytest

from iswitch.wire import Format
from iswitch.wire.formats import FORMATS, FRACTION_MAX, FRACTION_MIN, JOB_FORMATS, Arithmetic, job_format


def test_every_format_has_a_description():
    assert set(FORMATS) == set(Format)


def test_the_formats_of_jobs_are_those_of_the_protocol():
    assert JOB_FORMATS == {"window64": Format.WINDOW64, "fp32": Format.FP32, "int32": Format.INT32}


@pytest.mark.parametrize("format", Format)
def test_an_uplink_leads_back_to_the_jobs_format(format):
    assert job_format(FORMATS[format].uplink) == job_format(format)
    assert FORMATS[job_format(format)].uplink == FORMATS[format].uplink


@pytest.mark.parametrize("format", JOB_FORMATS.values())
def test_the_exponent_is_that_of_the_element(format):
    """Infinity has all exponent bits and no other, and integers have no exponent."""
    description = FORMATS[format]
    if description.exponent is None:
        assert description.arithmetic is Arithmetic.INTEGER
        return
    infinity = int(np.array([np.inf], description.element).view(np.uint32)[0])
    assert infinity == (1 << description.exponent.stop) - (1 << description.exponent.start)


def test_fraction_reaches_from_the_largest_to_the_smallest_float32():
    assert float(np.finfo(np.float32).smallest_subnormal) == 2.0**-FRACTION_MAX
    assert 2.0**-FRACTION_MIN < float(np.finfo(np.float32).max) < 2.0 ** (2 - FRACTION_MIN)

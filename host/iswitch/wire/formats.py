"""The number formats: one description of each, from which the driver, the golden models and the gateware derive."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import numpy as np

from iswitch.wire.frames import Format

__all__ = ["FORMATS", "FRACTION_MAX", "FRACTION_MIN", "JOB_FORMATS", "Arithmetic", "NumberFormat", "job_format"]

FRACTION_MIN, FRACTION_MAX = -126, 149
"""Fraction bits of a window: from a least significant bit of 2^126 to the smallest float32 subnormal."""


class Arithmetic(Enum):
    """How the aggregator adds the elements of a format."""

    WINDOW = "fixed point in a window of 64 bits, with the job's fraction bits; the result is rounded once"
    FLOAT = "IEEE 754 binary32, rounded after each addition"
    INTEGER = "modulo 2^32"


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """A number format, as elements have it on the wire and as the switch adds them.

    Parameters
    ----------
    element : numpy.dtype
        Element on the wire.
    arithmetic : Arithmetic
        How elements are added.
    exponent : slice, optional
        Bits of an element that hold its biased exponent. A contribution with an exponent at or above the limit is
        tainted: the job's limit for `Arithmetic.WINDOW`, 255 (NaN and infinity) for `Arithmetic.FLOAT`. None for
        integers, which are never tainted.
    uplink : Format
        Format of the partial sums that a switch sends to its parent.
    job : bool
        Whether a job can have this format. Otherwise only uplinks have it.
    """

    element: np.dtype
    arithmetic: Arithmetic
    exponent: slice | None
    uplink: Format
    job: bool = True


FORMATS: Mapping[Format, NumberFormat] = MappingProxyType(
    {
        Format.WINDOW64: NumberFormat(
            element=np.dtype("<f4"), arithmetic=Arithmetic.WINDOW, exponent=slice(23, 31), uplink=Format.FIXED64
        ),
        Format.FP32: NumberFormat(
            element=np.dtype("<f4"), arithmetic=Arithmetic.FLOAT, exponent=slice(23, 31), uplink=Format.FP32
        ),
        Format.INT32: NumberFormat(
            element=np.dtype("<i4"), arithmetic=Arithmetic.INTEGER, exponent=None, uplink=Format.INT32
        ),
        Format.FIXED64: NumberFormat(
            element=np.dtype("<i8"), arithmetic=Arithmetic.WINDOW, exponent=None, uplink=Format.FIXED64, job=False
        ),
    }
)
"""The description of each format."""

JOB_FORMATS: Mapping[str, Format] = MappingProxyType(
    {format.name.lower(): format for format, description in FORMATS.items() if description.job}
)
"""The formats that a job can have, by the names that programs use."""


def job_format(format: int) -> Format:
    """Return the format of the jobs whose partial sums, or contributions, have this format on the wire."""
    format = Format(format)
    if FORMATS[format].job:
        return format
    return next(job for job in JOB_FORMATS.values() if FORMATS[job].uplink == format)

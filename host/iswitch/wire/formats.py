"""The number formats: one description of each, from which the driver, the golden models and the gateware derive."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import numpy as np

from iswitch.wire.frames import Format

__all__ = [
    "FORMATS",
    "FRACTION_MAX",
    "FRACTION_MIN",
    "HALF_BYTES",
    "JOB_FORMATS",
    "PAYLOAD_UNIT",
    "Arithmetic",
    "NumberFormat",
    "job_format",
    "supported_formats",
]

FRACTION_MIN, FRACTION_MAX = -126, 149
"""Fraction bits of a window: from a least significant bit of 2^126 to the smallest float32 subnormal."""

HALF_BYTES = 2
"""Bytes of an element of a half-width format."""

PAYLOAD_UNIT = 4
"""The bytes of a contribution are a multiple of this, whatever its format is."""


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
        Bits of an element that hold its biased exponent. A contribution is tainted by an element whose exponent, after
        an exact conversion to binary32, is at or above the limit: the job's limit for `Arithmetic.WINDOW`, 255 (NaN and
        infinity) for `Arithmetic.FLOAT`. None for integers, which are never tainted.
    fractions : range
        Fraction bits F that a job of this format can have.
    name : str, optional
        What elements are called. Default: the name of `element`.
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
    fractions: range = range(FRACTION_MIN, FRACTION_MAX + 1)
    name: str | None = None

    @property
    def element_name(self) -> str:
        """What elements are called."""
        return self.name or self.element.name

    @property
    def is_half_width(self) -> bool:
        """Whether an element has two bytes on the wire."""
        return self.element.itemsize == HALF_BYTES


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
        # numpy has no bfloat16: its elements are the upper halves of binary32 numbers, as integers.
        Format.BF16: NumberFormat(
            element=np.dtype("<u2"),
            arithmetic=Arithmetic.WINDOW,
            exponent=slice(7, 15),
            uplink=Format.FIXED64,
            name="bfloat16",
        ),
        # With these fractions every finite element is exact, and none is out of range.
        Format.FP16: NumberFormat(
            element=np.dtype("<f2"),
            arithmetic=Arithmetic.WINDOW,
            exponent=slice(10, 15),
            uplink=Format.FIXED64,
            fractions=range(24, 43),
        ),
    }
)
"""The description of each format."""

JOB_FORMATS: Mapping[str, Format] = MappingProxyType(
    {format.name.lower(): format for format, description in FORMATS.items() if description.job}
)
"""The formats that a job can have, by the names that programs use."""


def supported_formats(*, half_width: bool) -> frozenset[Format]:
    """Return the formats that a job of a switch can have, which is or is not built with the half-width ones."""
    return frozenset(format for format in JOB_FORMATS.values() if half_width or not FORMATS[format].is_half_width)


def job_format(format: int, own: int) -> Format:
    """Return the format of the sum to which a contribution or an uplink belongs.

    Parameters
    ----------
    format : int
        The format on the wire.
    own : int
        The format of the job.
    """
    return Format(own if format == FORMATS[Format(own)].uplink else format)

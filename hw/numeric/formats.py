"""What the gateware derives from the descriptions of the number formats (`iswitch.wire.formats`).

A function of a format's 4-bit number is a comparison with each format that has the property: no number of a format is
compared anywhere else.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_

from amaranth.hdl import Const, Mux, Value

from iswitch.wire import Format
from iswitch.wire.formats import FORMATS, Arithmetic, NumberFormat, job_format

__all__ = [
    "ELEMENT_BITS",
    "adds_as",
    "can_be_job_format",
    "element_exponents",
    "format_of_job",
    "has_wide_uplink",
    "is_rejected",
    "is_wide",
    "uplink_format",
]

ELEMENT_BITS = 32
"""Bits of an element in contributions and results. Only the partial sums of uplinks are wider, by a factor of 2."""
_KNOWN = {number: description for number, description in FORMATS.items() if not description.is_half_width}
"""Narrower elements are not widened yet: for the gateware, half-width formats are no formats."""
_CONTRIBUTED = [description for description in _KNOWN.values() if description.job]


def _is_one_of(format: Value, holds: Callable[[NumberFormat], bool]) -> Value:
    return reduce(or_, [format == number for number, description in _KNOWN.items() if holds(description)])


def _mapped(format: Value, function: Callable[[Format], Format]) -> Value:
    """Return the format to which `function` maps; a number that is no format stays as it is."""
    result = format
    for number in _KNOWN:
        if function(number) != number:
            result = Mux(format == number, function(number), result)
    return result


def can_be_job_format(format: Value) -> Value:
    """Return whether a job can have the format."""
    return _is_one_of(format, lambda description: description.job)


def adds_as(format: Value, arithmetic: Arithmetic) -> Value:
    """Return whether contributions of the format are added by this arithmetic."""
    return _is_one_of(format, lambda description: description.job and description.arithmetic is arithmetic)


def is_wide(format: Value) -> Value:
    """Return whether an element has twice `ELEMENT_BITS` on the wire."""
    return _is_one_of(format, lambda description: 8 * description.element.itemsize == 2 * ELEMENT_BITS)


def has_wide_uplink(format: Value) -> Value:
    """Return whether the partial sums of a job's format are wide."""
    return _is_one_of(format, lambda d: d.job and 8 * FORMATS[d.uplink].element.itemsize == 2 * ELEMENT_BITS)


def uplink_format(format: Value) -> Value:
    """Return the format in which partial sums of a job's format go to the parent."""
    return _mapped(format, lambda number: FORMATS[number].uplink)


def format_of_job(format: Value) -> Value:
    """Return the job's format for the format of a contribution or an uplink."""
    return _mapped(format, lambda number: job_format(number, Format.WINDOW64))


def element_exponents(data: Value) -> list[Value]:
    """Return the biased exponent of each element of a bus word, as if all were floats."""
    (exponent,) = {(d.exponent.start, d.exponent.stop) for d in _CONTRIBUTED if d.exponent is not None}
    return [data[at + exponent[0] : at + exponent[1]] for at in range(0, len(data), ELEMENT_BITS)]


def is_rejected(format: Value, exponent: Value, limit: Value) -> Value:
    """Return whether an element with this biased exponent taints a contribution: at or above `limit` in a window, NaN
    or infinity in a float."""
    top = Const((1 << len(exponent)) - 1, len(exponent))
    return (adds_as(format, Arithmetic.WINDOW) & (exponent >= limit)) | (
        adds_as(format, Arithmetic.FLOAT) & (exponent == top)
    )

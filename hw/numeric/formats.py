"""What the gateware derives from the descriptions of the number formats (`iswitch.wire.formats`).

A function of a format's 4-bit number is a comparison with each format that has the property: no number of a format is
compared anywhere else.
"""

from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Const, Mux, Value

from iswitch.wire import Format
from iswitch.wire.formats import FORMATS, HALF_BYTES, Arithmetic, NumberFormat

__all__ = [
    "ELEMENT_BITS",
    "HALF_BITS",
    "adds_as",
    "can_be_job_format",
    "element_exponents",
    "format_of_job",
    "fraction_is_good",
    "half_exponents",
    "has_wide_uplink",
    "is_binary16",
    "is_half",
    "is_rejected",
    "is_wide",
    "lane_format",
    "uplink_format",
]

ELEMENT_BITS = 32
"""Bits of an element in the switch. On the wire, an element of a half-width format has half of them, and one of the
partial sums of uplinks twice as many."""
HALF_BITS = 8 * HALF_BYTES
((_EXPONENT_AT, _EXPONENT_END),) = {
    (known.exponent.start, known.exponent.stop)
    for known in FORMATS.values()
    if known.exponent is not None and not known.is_half_width
}
_HALF_EXPONENT = {number: known.exponent for number, known in FORMATS.items() if known.is_half_width}


def _known(half_width: bool) -> dict[Format, NumberFormat]:
    """Return the formats of a switch that is or is not built with the half-width ones."""
    return {number: known for number, known in FORMATS.items() if half_width or not known.is_half_width}


def _is_one_of(format: Value, holds: Callable[[NumberFormat], bool], half_width: bool) -> Value:
    return reduce(or_, [format == number for number, known in _known(half_width).items() if holds(known)])


def can_be_job_format(format: Value, *, half_width: bool) -> Value:
    """Return whether a job can have the format."""
    return _is_one_of(format, lambda known: known.job, half_width)


def fraction_is_good(format: Value, fraction: Value) -> Value:
    """Return whether a job of a half-width format can have so many fraction bits, if a `window64` job can."""
    limits = [
        (format != number) | (fraction >= known.fractions.start) & (fraction < known.fractions.stop)
        for number, known in FORMATS.items()
        if known.is_half_width and known.fractions != FORMATS[Format.WINDOW64].fractions
    ]
    return reduce(and_, limits)


def adds_as(format: Value, arithmetic: Arithmetic, *, half_width: bool) -> Value:
    """Return whether contributions of the format are added by this arithmetic."""
    return _is_one_of(format, lambda known: known.job and known.arithmetic is arithmetic, half_width)


def is_wide(format: Value) -> Value:
    """Return whether an element has twice `ELEMENT_BITS` on the wire."""
    return _is_one_of(format, lambda known: 8 * known.element.itemsize == 2 * ELEMENT_BITS, False)


def is_half(format: Value) -> Value:
    """Return whether an element has `HALF_BITS` on the wire."""
    return _is_one_of(format, lambda known: known.is_half_width, True)


def is_binary16(format: Value) -> Value:
    """Return whether elements on the wire are binary16 numbers."""
    return format == Format.FP16


def has_wide_uplink(format: Value, *, half_width: bool) -> Value:
    """Return whether the partial sums of a job's format are wide."""
    return _is_one_of(
        format, lambda known: known.job and 8 * FORMATS[known.uplink].element.itemsize == 2 * ELEMENT_BITS, half_width
    )


def uplink_format(format: Value, *, half_width: bool) -> Value:
    """Return the format in which partial sums of a job's format go to the parent; a number that is no format stays as
    it is."""
    result = format
    for number, known in _known(half_width).items():
        if known.uplink != number:
            result = Mux(format == number, known.uplink, result)
    return result


def lane_format(format: Value) -> Value:
    """Return a format by which the lanes add elements that have this format on the wire: they know no `fixed64`."""
    return Mux(format == Format.FIXED64, Format.WINDOW64, format)


def format_of_job(format: Value, own: Value, *, half_width: bool) -> Value:
    """Return the format of the sum to which a contribution or an uplink of this format belongs, in a job of format
    `own`."""
    return Mux(format == Format.FIXED64, own, format) if half_width else lane_format(format)


def element_exponents(data: Value) -> list[Value]:
    """Return the biased exponent of each element of a bus word, as if all were binary32."""
    return [data[at + _EXPONENT_AT : at + _EXPONENT_END] for at in range(0, len(data), ELEMENT_BITS)]


def half_exponents(data: Value, format: Value) -> list[tuple[Value, Value]]:
    """Return the exponents of each two elements of a bus word, as they are after an exact conversion to binary32.

    `format`: that of the word, whose elements are half-width or binary32. Of a binary32 element the second exponent is
    0. Of a binary16 element counts only whether it is finite, because no finite one is out of range: the exponent is
    255 or below all limits of the format.
    """
    binary16, half = is_binary16(format), is_half(format)
    words = [data[at : at + HALF_BITS] for at in range(0, len(data), HALF_BITS)]
    exponents = []
    for lower, upper in zip(words[::2], words[1::2], strict=True):
        found = []
        for word in (upper, lower):
            exponent = word[_HALF_EXPONENT[Format.FP16]]
            found.append(Mux(binary16, Cat(exponent, exponent.all().replicate(3)), word[_HALF_EXPONENT[Format.BF16]]))
        exponents.append((found[0], Mux(half, found[1], 0)))
    return exponents


def is_rejected(format: Value, exponent: Value, limit: Value, *, half_width: bool) -> Value:
    """Return whether an element with this biased exponent taints a contribution: at or above `limit` in a window, NaN
    or infinity in a float."""
    top = Const((1 << len(exponent)) - 1, len(exponent))
    return (adds_as(format, Arithmetic.WINDOW, half_width=half_width) & (exponent >= limit)) | (
        adds_as(format, Arithmetic.FLOAT, half_width=half_width) & (exponent == top)
    )

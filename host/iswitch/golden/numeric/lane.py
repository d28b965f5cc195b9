"""The aggregator's lanes: what they do to the elements of a payload, for all elements at once.

The accumulator of an element is 64 bits. `window64`, `bf16` and `fp16` fill them with a signed integer; `fp32` and
`int32` keep their 32 bits in the low half and zeros above. The poison bit belongs to the former and is False elsewhere.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from iswitch.wire import Format
from iswitch.wire.formats import FORMATS, FRACTION_MAX, FRACTION_MIN, JOB_FORMATS, Arithmetic

from . import fp32, half, window64

__all__ = [
    "POISON",
    "Stored",
    "accumulate",
    "accumulate_uplink",
    "exponent_limit",
    "install",
    "installed",
    "is_tainted",
    "patterns",
    "result",
    "uplink",
    "widened",
]

POISON = -1 << 63
"""A poisoned element of an uplink. No sum of 32 terms below 2^58 reaches this value."""

_LOW = (1 << 32) - 1


class Stored(NamedTuple):
    """The accumulators of a slot: one entry per element."""

    accumulator: np.ndarray
    """int64"""
    poison: np.ndarray
    """bool: a rejected term belongs to the sum"""


def arithmetic_of(name: str, format: int) -> Arithmetic:
    """Return how contributions of a format are added.

    Raises
    ------
    ValueError
        If no job has this format. The message names the function `name`.
    """
    description = FORMATS[Format(format)]
    if not description.job:
        *others, last = (known.name for known in JOB_FORMATS.values())
        raise ValueError(f"{name} format must be {', '.join(others)} or {last}, not {Format(format)!r}")
    return description.arithmetic


def patterns(format: int) -> np.dtype[Any]:
    """Return the integer type as which this model reads elements of a format from a frame."""
    size = FORMATS[Format(format)].element.itemsize
    return np.dtype("<i8" if size == 8 else f"<u{size}")


def widened(format: int, payload: ArrayLike) -> np.ndarray:
    """Return the elements of a contribution as patterns of 32 bits: half-width ones converted to binary32."""
    if FORMATS[Format(format)].is_half_width:
        return half.widen(format, payload)
    return np.asarray(payload, dtype=np.uint32)


def exponent_limit(fraction: int) -> int:
    """Return the lowest biased exponent that `window64` rejects.

    |x| < 2^(58 - F) means an exponent below 185 - F. NaN and infinities have 255.
    """
    if not FRACTION_MIN <= fraction <= FRACTION_MAX:
        raise ValueError(f"exponent_limit fraction must be {FRACTION_MIN} to {FRACTION_MAX}, not {fraction!r}")
    return min(255, 185 - fraction)


def is_tainted(format: int, payload: ArrayLike, limit: int) -> bool:
    """Return whether a contribution holds a NaN, an infinity or, in a window, an element out of range."""
    match arithmetic_of("is_tainted", format):
        case Arithmetic.WINDOW:
            lowest = min(limit, 255)
        case Arithmetic.FLOAT:
            lowest = 255
        case Arithmetic.INTEGER:
            return False
    return bool(np.any((widened(format, payload) >> 23 & 0xFF) >= lowest))


def accumulate(
    format: int, stored: Stored | None, payload: ArrayLike, *, fraction: int, limit: int, include: bool, first: bool
) -> tuple[Stored, int]:
    """Return a slot's accumulators after a contribution, and how many of its non-zero terms rounded to zero.

    Parameters
    ----------
    format : int
        The slot's number format.
    stored : Stored or None
        The accumulators before; None is allowed with `first`.
    payload : array_like of uint32 or uint16
        The elements as they stand in the frame.
    fraction : int
        F: a term of a window is x * 2^F.
    limit : int
        The lowest biased exponent that is rejected.
    include : bool
        False adds nothing and uses the payload's length only. With `first` that is how a slot becomes zeros.
    first : bool
        Whether the accumulators before are overwritten.

    Raises
    ------
    ValueError
        If the payload is not as long as the accumulators, unless `first`.
    """
    payload = widened(format, payload)
    nothing = np.zeros(payload.shape, dtype=np.int64), np.zeros(payload.shape, dtype=bool)
    old = Stored(*nothing) if first or stored is None else stored
    if old.accumulator.shape != payload.shape or (stored is None and not first):
        raise ValueError(f"accumulate stored must be as long as the payload ({payload.size}) unless first")
    if not include:
        return Stored(old.accumulator.copy(), old.poison.copy()), 0
    match arithmetic_of("accumulate", format):
        case Arithmetic.WINDOW:
            terms, rejected, flushed = window64.to_fixed(payload, fraction, limit)
            return Stored(old.accumulator + terms, old.poison | rejected), int(flushed.sum())
        case Arithmetic.FLOAT:
            low = (old.accumulator & _LOW).astype(np.uint32)
            total = fp32.canonical(payload) if first else fp32.add(low, payload)
        case Arithmetic.INTEGER:
            total = (old.accumulator + payload.astype(np.int64)) & _LOW
    return Stored(total.astype(np.int64), nothing[1]), 0


def result(format: int, stored: Stored, fraction: int) -> np.ndarray:
    """Return the elements of the result, as uint32, or uint16 in half-width formats."""
    match arithmetic_of("result", format):
        case Arithmetic.WINDOW if FORMATS[Format(format)].is_half_width:
            return np.where(stored.poison, half.NAN[Format(format)], half.narrow(format, stored.accumulator, fraction))
        case Arithmetic.WINDOW:
            return np.where(stored.poison, np.uint32(fp32.NAN), window64.from_fixed(stored.accumulator, fraction))
        case Arithmetic.FLOAT | Arithmetic.INTEGER:
            return (stored.accumulator & _LOW).astype(np.uint32)


def uplink(format: int, stored: Stored) -> np.ndarray:
    """Return the elements of an uplink, unrounded: int64 for windows (`fixed64` on the wire), else uint32."""
    if FORMATS[Format(format)].arithmetic is Arithmetic.WINDOW:
        return np.where(stored.poison, np.int64(POISON), stored.accumulator)
    return (stored.accumulator & _LOW).astype(np.uint32)


def accumulate_uplink(format: int, stored: Stored | None, payload: np.ndarray, *, first: bool) -> Stored:
    """Return a slot's accumulators after an uplink of the same format, as `uplink` made it.

    Nothing is rejected, because the leaf has checked each contribution.
    """
    if FORMATS[Format(format)].arithmetic is not Arithmetic.WINDOW:
        return accumulate(format, stored, payload, fraction=0, limit=0, include=True, first=first)[0]
    old = (
        Stored(np.zeros(payload.shape, np.int64), np.zeros(payload.shape, bool)) if first or stored is None else stored
    )
    poison = payload == POISON
    return Stored(old.accumulator + np.where(poison, 0, payload), old.poison | poison)


def install(payload: np.ndarray) -> Stored:
    """Return the accumulators that hold a parent's result as it is."""
    return Stored(payload.astype(np.int64), np.zeros(payload.shape, bool))


def installed(format: int, stored: Stored) -> np.ndarray:
    """Return the elements of a result that `install` has stored, uint32 or uint16."""
    return (stored.accumulator & _LOW).astype(patterns(format).newbyteorder("="))

"""Formats `bf16` and `fp16`: elements of two bytes to binary32, and sums of a window to such elements.

Promises the same bits as exact fractions: widening changes no value, and a result is sum * 2^-F rounded once to the
nearest element, ties to even, subnormals included, overflow as an infinity. A sum of 0 is +0; a negative sum that
rounds to zero is -0, which takes `bf16` and a `fraction` above 133.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from iswitch.wire import Format

from .window64 import to_float64

__all__ = ["NAN", "narrow", "widen"]

NAN = {Format.BF16: np.uint16(0x7FC0), Format.FP16: np.uint16(0x7E00)}
"""The one NaN of each format that leaves the switch."""

_PRECISION, _LEAST_EXPONENT = 8, -133
"""bfloat16: bits of a significand, and log2 of the smallest subnormal."""


def widen(format: int, values_u16: ArrayLike) -> np.ndarray:
    """Return elements as float32 bit patterns. NaNs stay NaNs."""
    values = np.asarray(values_u16, dtype=np.uint16)
    if format == Format.BF16:
        return values.astype(np.uint32) << 16
    return values.view(np.float16).astype(np.float32).view(np.uint32)


def narrow(format: int, sums: ArrayLike, fraction: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Return the patterns of the elements nearest to sums * 2^-fraction.

    The processor rounds to binary16. To bfloat16, the number is rounded to a multiple of the distance of its
    neighbours, and what results is a float32 whose lower half is zero.
    """
    wide = to_float64(sums, fraction)
    with np.errstate(over="ignore"):
        if format == Format.FP16:
            return wide.astype(np.float16).view(np.uint16)
        distance = np.maximum(np.frexp(wide)[1] - _PRECISION, _LEAST_EXPONENT)
        rounded = np.ldexp(np.rint(np.ldexp(wide, -distance)), distance).astype(np.float32)
    return (rounded.view(np.uint32) >> 16).astype(np.uint16)

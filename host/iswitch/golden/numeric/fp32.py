"""Format `fp32`: IEEE-754 binary32 addition of arrays, rounded to nearest even, with subnormals.

Every NaN leaves as 0x7FC00000, whatever came in; x + -x is +0; -0 + -0 is -0. The processor's own adder does it.
"""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["NAN", "add", "canonical"]

NAN = 0x7FC00000
"""The one NaN that leaves the switch."""


def canonical(values_u32: ArrayLike) -> np.ndarray:
    """Return the same elements with every NaN replaced by `NAN`."""
    values = np.asarray(values_u32, dtype=np.uint32)
    return np.where((values & 0x7FFFFFFF) > 0x7F800000, np.uint32(NAN), values)


def add(a_u32: ArrayLike, b_u32: ArrayLike) -> np.ndarray:
    """Return the sum of two arrays of float32 bit patterns, as bit patterns."""
    a, b = (np.asarray(operand, dtype=np.uint32).view(np.float32) for operand in (a_u32, b_u32))
    with np.errstate(over="ignore", invalid="ignore"):
        return canonical(np.add(a, b).view(np.uint32))

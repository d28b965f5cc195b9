"""Convert priorities to the switch's integers and back, and compute importance weights. Section 5 of `docs/replay.md`.

An integer is the priority times `scale`, a power of two, rounded to the nearest integer, halves to even. The product is
exact, so only one rounding happens. A priority above 0 never becomes 0, because the item would never be sampled again.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["HEADROOM_BITS", "Normalize", "Scale", "bucket", "bucket_start", "importance_weights"]

HEADROOM_BITS = 8
"""With the default scale, priorities below 2^8 fit: (|error| + epsilon)^0.6 of errors up to 10,000."""
_FINE_BITS = 3  # a bucket is an eighth of its power of two

Normalize = Literal["batch", "table"]


class Scale:
    """Converts priorities to integers of the switch and back.

    Parameters
    ----------
    bits : int
        Bits of a priority in the switch.
    scale : float or None
        The integer that stands for priority 1, a power of two; the same for all clients of a table. None:
        2^(bits - 8), so that priorities below 256 fit.

    Attributes
    ----------
    saturated : int
        Number of priorities so far that were too large, and became the largest integer.

    Raises
    ------
    ValueError
        If the scale is not a power of two.
    """

    def __init__(self, bits: int, scale: float | None = None):
        self.bits, self.largest_integer = bits, 2**bits - 1
        self.scale = float(2.0 ** (bits - HEADROOM_BITS) if scale is None else scale)
        if not (0 < self.scale < np.inf and np.frexp(self.scale)[0] == 0.5):
            raise ValueError(f"scale must be a power of two, such as 65536 or 1/16, not {scale!r}")
        self.saturated = 0

    @property
    def largest(self) -> float:
        """The largest priority that fits."""
        return self.largest_integer / self.scale

    def to_integers(self, priorities: npt.ArrayLike) -> np.ndarray:
        """Return priorities as uint32, in the same shape. Raises ValueError if a priority is NaN, infinite or below
        0."""
        real = np.asarray(priorities, np.float64)
        if real.size:  # usually all fit, and none becomes 0
            low, high = float(real.min()), float(real.max())  # NaN if there is one
            if low * self.scale > 0.5 and high * self.scale <= self.largest_integer:
                return np.rint(self.scale * real).astype(np.uint32)
        if not (np.isfinite(real).all() and (real >= 0).all()):
            wrong = real[~(np.isfinite(real) & (real >= 0))].ravel()
            raise ValueError(
                f"priorities must be finite and at least 0, but {len(wrong)} of {real.size} are not, the first is "
                f"{wrong[0]}: "
                "look for a diverging loss, and pass |error| ** alpha"
            )
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.rint(real * self.scale)
        scaled = np.where((real > 0) & (scaled == 0), 1.0, scaled)
        self.saturated += int((scaled > self.largest_integer).sum())
        return np.minimum(scaled, self.largest_integer).astype(np.uint32)

    def to_real(self, integers: npt.ArrayLike) -> np.ndarray:
        """Return as float64 the priorities for which integers of the switch stand, exactly."""
        return np.asarray(integers, np.float64) / self.scale


def bucket(priority: int) -> int:
    """Return the number of the bucket that the switch puts a priority in."""
    if priority < 2 << _FINE_BITS:
        return priority
    exponent = priority.bit_length() - 1 - _FINE_BITS
    return (exponent << _FINE_BITS) + (priority >> exponent)


def bucket_start(number: int) -> int:
    """Return the lowest priority of a bucket."""
    if number < 2 << _FINE_BITS:
        return number
    exponent = (number >> _FINE_BITS) - 1
    return number - (exponent << _FINE_BITS) << exponent


def importance_weights(
    priorities: np.ndarray,
    *,
    total: int,
    filled: int,
    beta: float,
    lowest: int = 0,
    overwritten: np.ndarray | None = None,
    normalize: Normalize = "batch",
) -> np.ndarray:
    """Compute importance weights (N P(i))^-beta, divided by the largest weight.

    Parameters
    ----------
    priorities : uint32 array of shape (n,)
        Integers above 0, as they were sampled.
    total : int
        Sum of all priorities of the table.
    filled : int
        Items in the table.
    beta : float
        Exponent.
    lowest : int
        Bucket of the lowest priority in the table, for `normalize="table"`.
    overwritten : bool array of shape (n,) or None
        Items that get weight 0 and do not count for the largest weight.
    normalize : {"batch", "table"}
        Divide by the largest weight in the batch, or by that of the lowest priority in the table. The latter is taken
        for the start of its bucket.

    Returns
    -------
    float32 array of shape (n,)
        The weights.
    """
    valid = np.ones(len(priorities), np.bool_) if overwritten is None else ~overwritten
    raised = np.zeros(len(priorities))
    raised[valid] = (total / (filled * priorities[valid].astype(np.float64))) ** beta
    if normalize == "table":
        largest = (total / (filled * max(1, bucket_start(lowest)))) ** beta
    else:
        largest = raised.max(initial=0.0)
    return (raised / (largest or 1.0)).astype(np.float32)

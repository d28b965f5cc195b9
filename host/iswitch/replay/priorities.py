"""Real priorities as the switch's integers and back, and what they say about a batch. Section 5 of `docs/replay.md`.

An integer is the real priority times `scale`, a power of two, rounded to the nearest, halves to even: so the product is
exact and the rounding the only one. What is above 0 never becomes 0, or an item would be lost to the draws for ever.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["HEADROOM_BITS", "Normalize", "Scale", "bucket", "bucket_begin", "importance_weights"]

HEADROOM_BITS = 8
"""Without a scale of the user's, priorities below 2^8 fit: of (|error| + epsilon)^0.6 that is errors up to 10,000."""
_FINE_BITS = 3  # a bucket is an eighth of its power of two

Normalize = Literal["batch", "table"]


class Scale:
    """Real priorities to u32 and back. scale: integers in 1.0, a power of two, the same for all clients of a table;
    None: 2^(bits - 8).

    saturated: priorities so far that were above the greatest integer, and were taken for it.
    """

    def __init__(self, bits: int, scale: float | None = None):
        self.bits, self.most = bits, 2**bits - 1
        self.scale = float(2.0 ** (bits - HEADROOM_BITS) if scale is None else scale)
        if not (0 < self.scale < np.inf and np.frexp(self.scale)[0] == 0.5):
            raise ValueError(f"scale must be a power of two, such as 65536 or 1/16, not {scale!r}")
        self.saturated = 0

    @property
    def greatest(self) -> float:
        """The greatest priority that is told from greater ones."""
        return self.most / self.scale

    def fixed(self, priorities: npt.ArrayLike) -> np.ndarray:
        """u32 of the shape given. ValueError if one is NaN, infinite or below 0."""
        real = np.asarray(priorities, np.float64)
        if not (np.isfinite(real).all() and (real >= 0).all()):
            wrong = real[~(np.isfinite(real) & (real >= 0))].ravel()
            raise ValueError(
                f"priorities must be finite and at least 0, but {len(wrong)} of {real.size} are not, the first is {wrong[0]}: "
                "look for a diverging loss, and pass |error| ** alpha"
            )
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.rint(real * self.scale)
        scaled = np.where((real > 0) & (scaled == 0), 1.0, scaled)
        self.saturated += int((scaled > self.most).sum())
        return np.minimum(scaled, self.most).astype(np.uint32)

    def real(self, fixed: npt.ArrayLike) -> np.ndarray:
        """float64, exactly what the integers stand for."""
        return np.asarray(fixed, np.float64) / self.scale


def bucket(priority: int) -> int:
    """In which of the switch's buckets a priority is."""
    if priority < 2 << _FINE_BITS:
        return priority
    exponent = priority.bit_length() - 1 - _FINE_BITS
    return (exponent << _FINE_BITS) + (priority >> exponent)


def bucket_begin(number: int) -> int:
    """The least priority in a bucket."""
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
    gone: np.ndarray | None = None,
    normalize: Normalize = "batch",
) -> np.ndarray:
    """float32 (N P)^-beta over the greatest there is: of the batch, or of the table, whose least priority is taken for
    the beginning of its bucket `lowest`. priorities: integers above 0, as drawn from `total` with `filled` items there.
    What is gone gets 0, and counts for nothing."""
    there = np.ones(len(priorities), np.bool_) if gone is None else ~gone
    raised = np.zeros(len(priorities))
    raised[there] = (total / (filled * priorities[there].astype(np.float64))) ** beta
    if normalize == "table":
        greatest = (total / (filled * max(1, bucket_begin(lowest)))) ** beta
    else:
        greatest = raised.max(initial=0.0)
    return (raised / (greatest or 1.0)).astype(np.float32)

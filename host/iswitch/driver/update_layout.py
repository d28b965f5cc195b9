"""How an update of an asynchronous job is cut into segments: a vector, and behind it a trailer.

The trailer has one entry for each worker. Its segments are int32 whatever the job's format is: each worker fills in its
own entry and leaves the others zero, so that the sum contains the entries of all workers in the update. An entry
holds the number of updates in the weights that the vector was computed with, and the digest of those updates. So every
worker obtains the age of each vector, and compares the updates that the others received with its own.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["TRAILER_ENTRY", "UpdateLayout"]

TRAILER_ENTRY = np.dtype([("version", "<u4"), ("transfer_job", "<u4"), ("digest", "<u8")])
"""One worker's entry. `version`: updates in the vector's weights. `digest`: the first 8 bytes of `AsyncWorker.digest`
after `version` updates. `transfer_job`: 0, or 1 plus the number of the job in which a joining worker waits for the
weights; such a worker sends a vector of zeros."""


@dataclass(frozen=True)
class UpdateLayout:
    """Numbers of segments of an update.

    Parameters
    ----------
    size : int
        Elements in a vector.
    elements : int
        Elements in a segment. The last segment of the vector may be shorter, and so may that of the trailer.
    world : int
        Workers of the job.
    """

    size: int
    elements: int
    world: int

    @cached_property
    def vector_segments(self) -> int:
        """Segments of the vector."""
        return -(-self.size // self.elements)

    @cached_property
    def segments(self) -> int:
        """Segments of an update: those of the vector, then those of the trailer."""
        return self.vector_segments + -(-self.world * TRAILER_ENTRY.itemsize // 4 // self.elements)

    def empty_trailer(self) -> np.ndarray:
        """Return a trailer of zeros: `TRAILER_ENTRY`, shape (world,)."""
        return np.zeros(self.world, TRAILER_ENTRY)

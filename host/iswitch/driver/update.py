"""An update of an asynchronous job: the sum of some workers' vectors, and in a trailer what each of them says about its
own.

The trailer is segments of their own, in `int32` whatever the job's format is: every worker fills in its own entry and
leaves the others' zero, so that the sum holds the entries of all who are in the update. An entry says how many updates
were in the weights that the vector was computed with, and what the digest of these updates was. So everybody knows each
vector's age, and everybody compares what the others were given with what it was given itself.
"""

from dataclasses import dataclass, field

import numpy as np

from iswitch.results import Reduction, ranks_of

__all__ = ["ENTRY", "Layout", "Update"]

ENTRY = np.dtype([("version", "<u4"), ("asks", "<u4"), ("digest", "<u8")])
"""What a worker says of its vector. digest: the first 8 bytes of `AsyncWorker.digest` after `version` updates. asks:
not 0 if it is a newcomer without weights, whose vector is zeros; 1 more than the number of the job in which it waits
for them."""


@dataclass(frozen=True)
class Layout:
    """How an update is cut. size: numbers in a vector. elements: numbers in a segment; the vector's last one may be
    shorter, and so may the trailer's. world: workers of the job."""

    size: int
    elements: int
    world: int

    @property
    def vector(self) -> int:
        """Segments of the vector."""
        return -(-self.size // self.elements)

    @property
    def segments(self) -> int:
        """Segments of an update: the vector's, then the trailer's."""
        return self.vector + -(-self.world * ENTRY.itemsize // 4 // self.elements)

    def trailer(self) -> np.ndarray:
        """Entries that nobody has filled in, `ENTRY`, (world,)."""
        return np.zeros(self.world, ENTRY)


@dataclass(frozen=True, repr=False)
class Update:
    """number: 0, 1, ... in the order in which all workers apply them. sum: float32 or int32, (size,), the receiver's to
    keep. versions: for each rank in the update, how many updates were in the weights that its vector was computed
    with."""

    number: int
    sum: np.ndarray = field(repr=False)
    versions: dict[int, int]
    reduction: Reduction = field(repr=False)

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks whose vector is in the sum of at least one segment."""
        return ranks_of(int(np.bitwise_or.reduce(self.reduction.members)))

    @property
    def count(self) -> int:
        """How many they are. Segments may have fewer, if a worker left or sent NaN: `counts`."""
        return len(self.members)

    @property
    def counts(self) -> np.ndarray:
        """u16, (segments,): how many workers are in each segment's sum. Nobody's segment is zeros."""
        return self.reduction.counts

    @property
    def tainted(self) -> tuple[int, ...]:
        """Ranks whose vector held NaN, an infinity or a number out of range. Such segments are left out of the sum."""
        return self.reduction.tainted

    def __repr__(self) -> str:
        return f"Update(number={self.number}, members={self.members}, tainted={self.tainted}, versions={self.versions})"

    @property
    def ages(self) -> dict[int, int]:
        """By rank: this update's number minus that of the first one that was not in the vector's weights; at most the
        staleness."""
        return {rank: self.number - version for rank, version in self.versions.items()}

    def mean(self) -> np.ndarray:
        """float32, (size,): each segment of the sum divided by its own count."""
        if self.sum.dtype != np.float32:
            raise ValueError("a mean is of float32: a mean of integers is none")
        values = self.sum.copy()
        self.reduction.divide(values)
        return values

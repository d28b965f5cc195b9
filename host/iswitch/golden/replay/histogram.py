"""Golden model of the histogram of priorities: logarithmic buckets, and which of them are not empty.

A priority p below 16 is in bucket p; else, with e = floor(log2 p) - 3, in bucket 8 e + floor(p / 2^e): eight buckets to
each power of two.
"""

from collections import Counter

__all__ = ["Histogram", "bucket", "least"]


def bucket(priority: int) -> int:
    """Return the bucket of a priority.

    Raises
    ------
    ValueError
        If the priority is below 0.
    """
    if priority < 0:
        raise ValueError(f"a priority must not be below 0, not {priority!r}")
    exponent = max(priority.bit_length() - 4, 0)
    return 8 * exponent + (priority >> exponent)


def least(bucket: int) -> int:
    """Return the least priority in a bucket."""
    exponent = max(bucket // 8 - 1, 0)
    return bucket - 8 * exponent << exponent


class Histogram:
    """How many priorities above 0 are in each bucket."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def change(self, old: int, new: int) -> None:
        """Replace one priority by another; 0 stands for none.

        Raises
        ------
        ValueError
            If the old priority's bucket is empty.
        """
        if old and bucket(old) not in self.counts:
            raise ValueError(f"no priority in the bucket of {old} can change, there is none")
        for priority, by in ((old, -1), (new, 1)):
            if priority:
                self.counts[bucket(priority)] += by
        if old and not self.counts[bucket(old)]:
            del self.counts[bucket(old)]

    @property
    def lowest(self) -> int:
        """The bucket of the least priority; 0 if there is no priority."""
        return min(self.counts, default=0)

    @property
    def highest(self) -> int:
        """The bucket of the greatest priority; 0 if there is no priority."""
        return max(self.counts, default=0)

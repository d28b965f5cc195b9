"""What a sum says about itself: who is in it, and what to make of it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from iswitch.errors import MissingWarning, NoContributionError, TaintedError, TaintWarning

__all__ = ["Reduction", "ranks_of"]


@dataclass(frozen=True)
class Reduction:
    """Who is in a sum. An array is cut into segments, each of which is a sum of its own.

    world: workers of the job. elements: numbers in a segment (the last may have fewer). resent: contributions that this
    worker sent more than once. odd: the switch flagged a segment as partial or tainted.
    """

    world: int
    elements: int
    resent: int
    headers: np.ndarray = field(repr=False)
    odd: bool = field(repr=False, default=False)

    @property
    def counts(self) -> np.ndarray:
        """u16, (segments,): how many workers are in each segment's sum."""
        return self.headers["count"]

    @property
    def members(self) -> np.ndarray:
        """u32, (segments,): bit r is set if rank r is in the segment's sum."""
        return self.headers["members"]

    @property
    def tainted(self) -> tuple[int, ...]:
        """Ranks whose contribution to any segment held NaN, an infinity or a number out of range."""
        return ranks_of(int(np.bitwise_or.reduce(self.headers["token"], initial=0)))

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the job that are not in the sum of at least one segment: too late (threshold), quarantined, gone."""
        everybody = (1 << self.world) - 1
        return ranks_of(everybody & ~int(np.bitwise_and.reduce(self.headers["members"], initial=everybody)))

    @property
    def whole(self) -> bool:
        """Everybody is in every segment's sum."""
        return not self.missing

    def divide(self, values: np.ndarray) -> None:
        """Sums to means, in place: each segment of `values`, 1-D float32, by the number of workers in it."""
        count = int(self.counts[0])
        if np.count_nonzero(self.counts == count) == len(self.counts):
            values /= np.float32(max(1, count))
        else:
            values /= np.repeat(np.maximum(self.counts, 1).astype(np.float32), self.elements)[:values.size]

    def judge(self, *, everybody: bool, takes: str, on_taint: str) -> None:
        """NoContributionError if a segment is nobody's sum; of tainted ones what `on_taint` says, as in `Worker`; MissingWarning if
        `everybody` was to contribute and somebody did not. takes: what numbers the job takes, as a sentence."""
        if not self.counts.all():
            raise NoContributionError(
                f"nobody's numbers are in {int((self.counts == 0).sum())} of {len(self.counts)} segments: "
                f"ranks {_list(self.tainted)} sent NaN, infinities or numbers out of range. {takes}")
        if gone := [rank for rank in self.missing if rank not in self.tainted] if everybody else []:
            warnings.warn(f"ranks {_list(gone)} are not in the sum: they have left the job, or somebody has lowered its threshold. "
                          "`Reduction.counts` says how many are", MissingWarning, stacklevel=3)
        if on_taint != "ignore" and self.tainted:
            left_out = set(self.tainted) <= set(self.missing)
            message = (f"ranks {_list(self.tainted)} sent NaN, infinities or numbers out of range"
                       f"{', and are left out of the sums of those segments' if left_out else ''}. {takes}")
            if on_taint == "raise":
                raise TaintedError(message)
            warnings.warn(message, TaintWarning, stacklevel=3)


def ranks_of(mask: int) -> tuple[int, ...]:
    """The ranks r of which bit r is set."""
    return tuple(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))

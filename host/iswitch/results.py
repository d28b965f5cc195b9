"""Which workers are in a sum, and what a collective says if some are not."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from iswitch.errors import MissingWarning, NoContributionError, TaintedError, TaintWarning
from iswitch.wire import Format

__all__ = ["TAINT_ADVICE", "Reduction", "ranks", "ranks_of", "taint_limit"]

_REMEDY = (
    "If the numbers are large, a smaller `fraction`, the same for all workers, takes larger ones and rounds small ones more coarsely; if "
    "they are NaN, look at that rank's loss"
)
TAINT_ADVICE = _REMEDY + '. on_taint="warn" or "ignore" does not raise TaintedError'


@dataclass(frozen=True, repr=False)
class Reduction:
    """Which workers are in a sum. An array is cut into segments, each of which is a sum of its own.

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
        """Ranks that are not in the sum of at least one segment: too late (threshold), quarantined, or no longer in the
        job."""
        everybody = (1 << self.world) - 1
        return ranks_of(everybody & ~int(np.bitwise_and.reduce(self.headers["members"], initial=everybody)))

    @property
    def absent(self) -> tuple[int, ...]:
        """Ranks that are missing without being tainted: too late (threshold), or no longer in the job."""
        return tuple(rank for rank in self.missing if rank not in self.tainted)

    @property
    def whole(self) -> bool:
        """All workers are in every segment's sum."""
        return not self.missing

    def __repr__(self) -> str:
        return f"Reduction(world={self.world}, segments={len(self.headers)}, missing={self.missing}, tainted={self.tainted}, resent={self.resent})"

    def divide(self, values: np.ndarray) -> None:
        """Sums to means, in place: each segment of `values`, 1-D float32, by the number of workers in it."""
        count = int(self.counts[0])
        if np.count_nonzero(self.counts == count) == len(self.counts):
            values /= np.float32(max(1, count))
        else:
            values /= np.repeat(np.maximum(self.counts, 1).astype(np.float32), self.elements)[: values.size]

    def judge(self, *, warn_missing: Sequence[int], number: int, limit: str, on_taint: str) -> None:
        """Say what is unusual about a result that is in place.

        Parameters
        ----------
        warn_missing : sequence of int
            Ranks that were expected and are not in the sum, to warn of.
        number : int
            Of the collective. It makes each warning's text new, because Python shows the same text only once.
        limit : str
            Which numbers the job does not take, as a part of a sentence.
        on_taint : str
            As in `Worker`.

        Raises
        ------
        NoContributionError
            If a segment holds no worker's numbers.
        TaintedError
            If a contribution was tainted and `on_taint` is "raise".
        """
        if not self.counts.all():
            raise NoContributionError(
                f"{int((self.counts == 0).sum())} of {len(self.counts)} segments hold no worker's numbers: {ranks(self.tainted)} sent {limit}. "
                f"{_REMEDY}"
            )
        if warn_missing:
            warnings.warn(
                f"{ranks(warn_missing)} {'are' if len(warn_missing) > 1 else 'is'} not in the sum of collective {number}: a worker has "
                "left, was evicted because it was silent for `evict_s`, or a lower threshold was set. `Reduction.counts` says how many "
                "workers are in each segment. This warning comes again when other ranks are missing",
                MissingWarning,
                stacklevel=4,
            )
        if on_taint != "ignore" and self.tainted:
            message = f"{self.taint(limit)}, in collective {number}. {TAINT_ADVICE}"
            if on_taint == "raise":
                raise TaintedError(message, self)
            warnings.warn(message, TaintWarning, stacklevel=4)

    def taint(self, limit: str) -> str:
        """Which ranks sent what, in how many segments, and what became of it; as the beginning of a sentence."""
        segments = int(np.count_nonzero(self.headers["token"]))
        left_out = set(self.tainted) <= set(self.missing)
        return (
            f"{ranks(self.tainted)} sent {limit} in {segments} of {len(self.headers)} segments"
            f"{', which are left out of the sums of those segments' if left_out else ', which makes NaN of those sums'}"
        )


def taint_limit(format: Format, fraction: int) -> str:
    """Which numbers a job does not take, as a part of a sentence."""
    if format != Format.WINDOW64:
        return "NaN or an infinity"
    return f"NaN, an infinity or a number with |x| >= {2.0 ** (58 - fraction):g} (`fraction` is {fraction})"


def ranks_of(mask: int) -> tuple[int, ...]:
    """The ranks r of which bit r is set."""
    return tuple(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def ranks(members: Sequence[int], conjunction: str = "and") -> str:
    """The ranks as a part of a sentence: "rank 1", "ranks 0, 1 and 4"."""
    if len(members) == 1:
        return f"rank {members[0]}"
    return f"ranks {', '.join(map(str, members[:-1]))} {conjunction} {members[-1]}" if members else "no rank"

"""Results of collectives and updates: the workers that are in a sum, and the errors and warnings about the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from iswitch.caller_warning import warn_program
from iswitch.errors import MissingWarning, NoContributionError, TaintedError, TaintWarning
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS, Arithmetic

__all__ = ["TAINT_ADVICE", "Reduction", "Update", "format_ranks", "ranks_of", "rejected_values"]

_REMEDY = (
    "If the values are large, choose a smaller `fraction`, the same on all workers: it admits larger values and "
    "rounds small ones more "
    "coarsely. If they are NaN, look at the loss of that rank"
)
TAINT_ADVICE = _REMEDY + '. With on_taint="warn" or "ignore" the worker does not raise TaintedError'


@dataclass(frozen=True, repr=False)
class Reduction:
    """The workers that are in each segment of a sum.

    The driver cuts an array into segments, and the switch sums each segment by itself. So one segment can lack a worker
    that another segment contains.

    Parameters
    ----------
    world : int
        Workers of the job.
    elements : int
        Elements in a segment; the last segment may have fewer.
    retransmissions : int
        Contributions that this worker retransmitted.
    headers : numpy.ndarray
        `iswitch.wire.RESULT_HEADER`, shape (segments,): the header of each segment's result.
    flagged : bool
        True if the switch marked a segment as partial or tainted.
    """

    world: int
    elements: int
    retransmissions: int
    headers: np.ndarray = field(repr=False)
    flagged: bool = field(repr=False, default=False)

    @property
    def counts(self) -> np.ndarray:
        """uint16, shape (segments,): the number of workers in each segment's sum."""
        return np.bitwise_count(self.member_masks).astype(np.uint16)

    @property
    def member_masks(self) -> np.ndarray:
        """uint32, shape (segments,): bit r is 1 if rank r is in the segment's sum."""
        return self.headers["members"]

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks that are in the sum of at least one segment."""
        return ranks_of(int(np.bitwise_or.reduce(self.member_masks, initial=0)))

    @property
    def tainted(self) -> tuple[int, ...]:
        """Ranks that sent NaN, an infinity or an element out of range in at least one segment."""
        return ranks_of(int(np.bitwise_or.reduce(self.headers["tainted"], initial=0)))

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that at least one segment lacks: too slow (threshold, deadline), quarantined, or not in the job."""
        all_ranks = (1 << self.world) - 1
        return ranks_of(all_ranks & ~int(np.bitwise_and.reduce(self.member_masks, initial=all_ranks)))

    @property
    def absent(self) -> tuple[int, ...]:
        """Ranks that are missing and not tainted: too slow (threshold, deadline), or not in the job."""
        return tuple(rank for rank in self.missing if rank not in self.tainted)

    @property
    def complete(self) -> bool:
        """True if every worker is in the sum of every segment."""
        masks, all_ranks = self.member_masks, (1 << self.world) - 1
        return masks.tobytes() == all_ranks.to_bytes(masks.itemsize, "little") * len(masks)

    def __repr__(self) -> str:
        return (
            f"Reduction(world={self.world}, segments={len(self.headers)}, missing={self.missing}, "
            f"tainted={self.tainted}, "
            f"retransmissions={self.retransmissions})"
        )

    def divide(self, values: np.ndarray) -> None:
        """Turn sums into means, in place.

        Parameters
        ----------
        values : numpy.ndarray
            float32, 1-D: the sum. Each segment is divided by the number of workers in it.
        """
        counts = self.counts
        count = int(counts[0])
        if np.count_nonzero(counts == count) == len(counts):
            values /= np.float32(max(1, count))
        else:
            values /= np.repeat(np.maximum(counts, 1).astype(np.float32), self.elements)[: values.size]

    def report_problems(self, *, warn_missing: Sequence[int], number: int, rejected: str, on_taint: str) -> None:
        """Raise or warn if the result lacks workers or is tainted. The result itself is in place already.

        Parameters
        ----------
        warn_missing : sequence of int
            Ranks to warn about: they were expected and are not in the sum.
        number : int
            Number of the collective. It makes the text of each warning new, because Python shows the same text once.
        rejected : str
            The values that the job rejects, as `rejected_values` returns them.
        on_taint : {"raise", "warn", "ignore"}
            What to do about a tainted segment.

        Raises
        ------
        NoContributionError
            If a segment contains no worker's elements.
        TaintedError
            If a contribution was tainted and `on_taint` is "raise".
        """
        if not self.counts.all():
            raise NoContributionError(
                f"{int((self.counts == 0).sum())} of {len(self.counts)} segments contain no worker's elements: "
                f"{format_ranks(self.tainted)} sent {rejected}. {_REMEDY}"
            )
        if warn_missing:
            warn_program(
                f"the sum of collective {number} lacks {format_ranks(warn_missing)}: the worker has left, the switch "
                "evicted it after "
                "`evict_s` of silence, or a worker lowered the threshold. `Reduction.absent` names these ranks, and "
                "`Reduction.counts` "
                "gives the number of workers in each segment. The next warning comes when other ranks are missing",
                MissingWarning,
            )
        if on_taint != "ignore" and self.tainted:
            message = f"in collective {number}, {self.describe_taint(rejected)}. {TAINT_ADVICE}"
            if on_taint == "raise":
                raise TaintedError(message, self)
            warn_program(message, TaintWarning)

    def describe_taint(self, rejected: str) -> str:
        """Return two sentences without the last period: which ranks sent what, and the effect on the sums.

        Parameters
        ----------
        rejected : str
            The values that the job rejects, as `rejected_values` returns them.
        """
        segments = int(np.count_nonzero(self.headers["tainted"]))
        effect = f"lack {format_ranks(self.tainted)}" if set(self.tainted) <= set(self.missing) else "are NaN"
        return (
            f"{format_ranks(self.tainted)} sent {rejected} in {segments} of {len(self.headers)} segments. The sums "
            f"of these segments {effect}"
        )


@dataclass(frozen=True, repr=False)
class Update:
    """An update of an asynchronous job: the sum of the vectors of some workers.

    Parameters
    ----------
    number : int
        Number of the update, from 0. All workers receive the same updates in this order.
    sum : numpy.ndarray
        float32, or int32 in a job of format "int32"; shape (size,). The program may keep and change it.
    versions : dict of int to int
        For each rank in the update: the number of updates in the weights that its vector was computed with.
    reduction : Reduction
        The workers that are in each segment of the sum.
    """

    number: int
    sum: np.ndarray = field(repr=False)
    versions: dict[int, int]
    reduction: Reduction = field(repr=False)

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks whose vector is in the sum of at least one segment."""
        return self.reduction.members

    @property
    def count(self) -> int:
        """Number of `members`. A segment has fewer if a worker left or sent NaN: see `counts`."""
        return len(self.members)

    @property
    def counts(self) -> np.ndarray:
        """uint16, shape (segments,): the number of workers in each segment's sum. A segment of no worker is zeros."""
        return self.reduction.counts

    @property
    def tainted(self) -> tuple[int, ...]:
        """Ranks whose vector held NaN, an infinity or an element out of range. The sum lacks such segments."""
        return self.reduction.tainted

    @property
    def ages(self) -> dict[int, int]:
        """For each rank in the update: the number of updates between the vector's weights and this update, at most the
        job's staleness."""
        return {rank: self.number - version for rank, version in self.versions.items()}

    def __repr__(self) -> str:
        return f"Update(number={self.number}, members={self.members}, tainted={self.tainted}, versions={self.versions})"

    def mean(self) -> np.ndarray:
        """Return the mean: each segment of the sum, divided by the number of workers in it.

        Returns
        -------
        numpy.ndarray
            float32, shape (size,), a new array.

        Raises
        ------
        ValueError
            If the job sums int32.
        """
        if self.sum.dtype != np.float32:
            raise ValueError(
                "`mean` needs a job of float32 vectors, because a mean of integers is not an integer: divide `sum`"
            )
        values = self.sum.copy()
        self.reduction.divide(values)
        return values


def rejected_values(format: Format, fraction: int) -> str:
    """Return the values that a job does not add, as a part of a sentence.

    Parameters
    ----------
    format : Format
        Number format of the job.
    fraction : int
        Fraction bits of "window64".

    Returns
    -------
    str
        For example "NaN or an infinity".
    """
    if FORMATS[format].arithmetic is not Arithmetic.WINDOW:
        return "NaN or an infinity"
    return f"NaN, an infinity or a value with |x| >= {2.0 ** (58 - fraction):g} (`fraction` is {fraction})"


def ranks_of(mask: int) -> tuple[int, ...]:
    """Return the ranks r for which bit r of a mask is 1."""
    return tuple(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def format_ranks(members: Sequence[int], conjunction: str = "and") -> str:
    """Return ranks as a part of a sentence: "rank 1", or "ranks 0, 1 and 4"."""
    if len(members) == 1:
        return f"rank {members[0]}"
    return f"ranks {', '.join(map(str, members[:-1]))} {conjunction} {members[-1]}" if members else "no rank"

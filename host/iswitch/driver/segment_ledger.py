"""The record of a collective's segments: which are lacked, when each was sent, and which are lost.

What may be sent, what is retransmitted and what is acknowledged all follow from this record. Segments are named by
their *index*, counted from the first segment of the collective. Loss detection follows RFC 5827 (early retransmit) and
RFC 8985 (RACK-TLP).
"""

import numpy as np

from iswitch.driver.timer import RetransmissionTimer

__all__ = ["REORDERING", "SegmentLedger"]

REORDERING = 3
"""A segment is lost as soon as this number of results of later segments has come."""
_PROBES, _PROBES_LOSSY = 1, 8
"""Number of the last lacked segments to retransmit after a time-out, in a good and in a lossy network."""
_NO_SEGMENTS = np.empty(0, np.int64)


class SegmentLedger:
    """State of each segment of one collective, and of the results for later collectives.

    Parameters
    ----------
    backlog : int
        Number of segments beyond the collective whose results may be recorded.
    """

    def __init__(self, backlog: int):
        self.backlog = backlog
        self.low = self.next = self.high = 0
        self.open(0)

    def open(self, segments: int) -> None:
        """Begin a collective of `segments` segments, of which nothing is sent and nothing is held."""
        self.segments = segments
        self.lacked = np.ones(segments + self.backlog + 1, np.bool_)
        """bool, (segments + backlog + 1,): the result is not here. The last entry is always True."""
        self.sent_at = np.zeros(segments)
        """Seconds, (segments,): the time of the last sending, 0 if the segment was never sent."""
        self.retransmitted = np.zeros(segments, np.bool_)
        self.retransmissions = 0
        self.low = 0
        """Lowest segment that is lacked."""
        self.next = 0
        """Lowest segment that was never sent."""
        self.high = 0
        """One above the highest segment that is held."""
        self.newest = -1
        """The highest segment that is held and was sent once."""

    def close(self) -> None:
        """End the collective: count from its end, and keep what is held beyond it."""
        segments, self.segments = self.segments, 0
        self.lacked = self.lacked[segments:]
        self.low, self.high, self.next = self.low - segments, max(0, self.high - segments), 0

    @property
    def held(self) -> int:
        """Number of the collective's segments whose result is here."""
        return self.segments - int(self.lacked[: self.segments].sum())

    def advance(self) -> None:
        """Move `low` to the lowest segment that is lacked now."""
        if not self.lacked[self.low]:
            self.low += int(self.lacked[self.low :].argmax())

    def record_results(self, which: slice | np.ndarray, first: int, end: int) -> int:
        """Record new results of the collective.

        Parameters
        ----------
        which : slice or numpy.ndarray
            Their segments.
        first, end : int
            All of them are from `first` to `end` - 1.

        Returns
        -------
        int
            The number of those whose contribution was retransmitted.
        """
        self.lacked[which] = False
        if end > self.high:
            self.high = end
        if isinstance(which, slice) and not self.retransmissions and end <= self.next:  # the usual case
            self.newest = max(self.newest, end - 1)
            return 0
        held = np.arange(first, end) if isinstance(which, slice) else which
        again = self.retransmitted[held]
        if len(once := held[(self.sent_at[held] > 0) & ~again]):
            self.newest = max(self.newest, int(once.max()))
        return int(np.count_nonzero(again))

    def record_later_results(self, indices: np.ndarray) -> None:
        """Record results of later collectives: i8, their indices from this collective's begin."""
        self.lacked[indices] = False
        self.high = max(self.high, int(indices.max()) + 1)

    def record_retransmissions(self, indices: np.ndarray) -> None:
        """Record that these segments are about to be retransmitted."""
        self.retransmitted[indices] = True
        self.retransmissions += len(indices)

    def overtaken(self) -> np.ndarray:
        """Return the segments that are lacked although `REORDERING` later results are here. One later result is enough
        if it is that of the last segment sent (RFC 5827)."""
        gap = REORDERING if self.high < self.next else 1
        if self.high - self.low < gap + 1:
            return _NO_SEGMENTS
        held = np.flatnonzero(~self.lacked[self.low : self.high])
        if len(held) < gap:
            return _NO_SEGMENTS
        end = min(self.low + int(held[-gap]), self.next)
        return np.flatnonzero(self.lacked[self.low : end]) + self.low

    def lost(self, now: float, timer: RetransmissionTimer) -> np.ndarray:
        """Return the overtaken segments to retransmit now: each after about a round trip, then once in a time-out.

        Parameters
        ----------
        now : float
            Time in seconds.
        timer : RetransmissionTimer
            Gives both times.

        Returns
        -------
        numpy.ndarray
            int64, ascending.
        """
        lost = self.overtaken()
        if not len(lost):
            return lost
        newest_sent_at = self.sent_at[self.newest] if self.newest >= 0 else 0.0
        due = np.where(self.retransmitted[lost], min(now - timer.base_s, newest_sent_at), now - timer.reordering_s)
        return lost[self.sent_at[lost] <= due]

    def probes(self, now: float, timer: RetransmissionTimer, *, has_results: bool) -> np.ndarray:
        """Return the segments to retransmit after a time-out without any result.

        Before the collective's first result that is the lowest segment alone: most likely another worker computes.
        After it, that is all overtaken segments, and the last ones, whose results show what is lost below them
        (RFC 8985, section 7).

        Parameters
        ----------
        now : float
            Time in seconds.
        timer : RetransmissionTimer
            Gives the time for which a retransmitted segment is left alone.
        has_results : bool
            The collective has received a result.

        Returns
        -------
        numpy.ndarray
            int64, ascending.
        """
        indices = np.array([self.low])
        if not has_results:
            return indices
        lacked = np.flatnonzero(self.lacked[self.low : self.next]) + self.low
        last = lacked[-(_PROBES_LOSSY if timer.lossy else _PROBES) :]
        indices = np.concatenate([indices, self.overtaken(), last])
        return np.unique(indices[self.sent_at[indices] <= now - timer.base_s])

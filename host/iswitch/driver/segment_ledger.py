"""The record of a member's segments: which are lacked, when each was requested, and which are lost.

What may be sent, what is retransmitted and what is acknowledged all follow from this record. Segments are named by
their *position*, counted from the seq with which the member began. A segment is *requested* by a contribution or by a
receipt: the switch answers both with the result. Loss detection follows RFC 5827 (early retransmit) and RFC 8985
(RACK-TLP).
"""

import math

import numpy as np

from iswitch.driver.timer import RetransmissionTimer
from iswitch.native.address import address_of
from iswitch.native.records import Exchange

__all__ = ["REORDERING", "SegmentLedger"]

REORDERING = 3
"""A segment is lost as soon as this number of results of later segments has come."""
_PROBES, _PROBES_LOSSY = 1, 8
"""Number of the last lacked segments to request after a time-out, in a good and in a lossy network."""
_NO_POSITIONS = np.empty(0, np.int64)


class SegmentLedger:
    """State of each segment from `low` to `low + reach`.

    The arrays hold several times `reach` positions and slide up when `low` nears their end, so that neighbours in
    position are neighbours in memory.

    Parameters
    ----------
    reach : int
        Results of segments from `low + reach` on are not recorded.
    """

    def __init__(self, reach: int):
        self.reach = reach
        self._length = 4 * reach + 4
        self._lacked = np.ones(self._length, np.bool_)
        self._requested_at = np.full(self._length, -math.inf)
        self._requests = np.zeros(self._length, np.uint32)
        self._origin = 0  # the position of the arrays' first entry
        self._requested_again = 0  # one above the highest position that was requested more than once
        self.low = 0
        """The lowest position that is lacked."""
        self.high = 0
        """One above the highest position that is held."""
        self.newest = -1
        """The highest position whose result has the delay of one request."""
        self.newest_request_at = -math.inf
        """The time of the latest request that gave a delay."""
        self.timed: int | None = None
        """The position whose delay is to be measured, or None. The owner clears it."""

    # The same state in C

    def lend(self, state: Exchange) -> None:
        """Set the arrays of a structure in C to those of this ledger."""
        state.lacked, state.requested_at = address_of(self._lacked), address_of(self._requested_at)
        state.requests, state.length, state.reach = address_of(self._requests), self._length, self.reach

    def load(self, state: Exchange) -> None:
        """Write the positions and times that change into a structure in C."""
        state.origin, state.low, state.high = self._origin, self.low, self.high
        state.newest, state.newest_request_s = self.newest, self.newest_request_at

    def store(self, state: Exchange) -> None:
        """Take them back."""
        self.low, self.high = state.low, state.high
        self.newest, self.newest_request_at = state.newest, state.newest_request_s
        self._slide_if_due()

    # What is lacked

    def lacks(self, position: int) -> bool:
        """Return True if the result of a position from `low` on is not here."""
        return position >= self.low + self.reach or bool(self._lacked[position - self._origin])

    def lacked(self, first: int, end: int) -> np.ndarray:
        """Return the lacked positions from `first` to `end` - 1: int64, ascending."""
        if first >= self.high:
            return np.arange(first, end)
        return np.flatnonzero(self._lacked[first - self._origin : end - self._origin]) + first

    def count_held(self, first: int, end: int) -> int:
        """Return the number of positions from `first` to `end` - 1 whose result is here."""
        below, known_end = max(first, self.low), min(end, self.high)
        above = self._lacked[below - self._origin : max(known_end, below) - self._origin]
        return min(end, below) - first + len(above) - int(np.count_nonzero(above))

    def new(self, positions: np.ndarray) -> np.ndarray:
        """Return a mask of the positions that are lacked and may be recorded."""
        mask = (positions >= self.low) & (positions < self.low + self.reach)
        mask[mask] = self._lacked[positions[mask] - self._origin]
        return mask

    # Recording

    def record_requests(self, positions: slice | np.ndarray, now: float) -> None:
        """Record that contributions or receipts for these positions are sent now."""
        at = self._entries(positions)
        self._requests[at] += 1
        self._requested_at[at] = now
        if isinstance(positions, np.ndarray) and len(positions) and (self._requests[at] > 1).any():
            self._requested_again = max(self._requested_again, int(positions[-1]) + 1)

    def record_results(self, positions: slice | np.ndarray, *, timed: bool) -> int:
        """Record new results.

        Parameters
        ----------
        positions : slice or numpy.ndarray
            Their positions.
        timed : bool
            True if the results answer this member's requests, so that their delay is that of the network.

        Returns
        -------
        int
            The number of those that were requested more than once.
        """
        at = self._entries(positions)
        self._lacked[at] = False
        if isinstance(positions, slice):
            self.high = max(self.high, positions.stop)
            if positions.start >= self._requested_again and self._requests[positions.stop - 1 - self._origin]:
                if timed:  # the usual case
                    self._time(positions.stop - 1)
                return 0
            positions = np.arange(positions.start, positions.stop)
        else:
            self.high = max(self.high, int(positions.max()) + 1)
        requests = self._requests[at]
        if timed and len(once := positions[requests == 1]):
            self._time(int(once.max()))
        return int(np.count_nonzero(requests > 1))

    def _time(self, position: int) -> None:
        requested_at = self.requested_at(position)
        if position > self.newest or requested_at > self.newest_request_at:
            self.newest, self.timed = max(self.newest, position), position
            self.newest_request_at = max(self.newest_request_at, requested_at)

    def requested_at(self, position: int) -> float:
        """Return the time of the last request for a position, in seconds."""
        return float(self._requested_at[position - self._origin])

    def _entries(self, positions: slice | np.ndarray) -> slice | np.ndarray:
        if isinstance(positions, slice):
            return slice(positions.start - self._origin, positions.stop - self._origin)
        return positions - self._origin

    def advance(self) -> None:
        """Move `low` to the lowest position that is lacked now."""
        at = self.low - self._origin
        if not self._lacked[at]:
            self.low += int(self._lacked[at:].argmax())
            self._slide_if_due()

    def _slide_if_due(self) -> None:
        """Drop the entries below `low`, before the arrays end."""
        if self.low + self.reach < self._origin + self._length:
            return
        dropped = self.low - self._origin
        kept = self._length - dropped
        for array, initial in ((self._lacked, True), (self._requested_at, -math.inf), (self._requests, 0)):
            array[:kept] = array[dropped:].copy()
            array[kept:] = initial
        self._origin = self.low

    # What to request again

    def overtaken(self, end: int, *, last_held: bool) -> np.ndarray:
        """Return the lacked positions below `end` above which `REORDERING` results are here.

        Parameters
        ----------
        end : int
            One above the highest position that may be requested.
        last_held : bool
            No result above `high` is expected, so one later result is enough (RFC 5827).

        Returns
        -------
        numpy.ndarray
            int64, ascending.
        """
        gap = 1 if last_held else REORDERING
        if self.high == self.low:  # the usual case
            return _NO_POSITIONS
        held = np.flatnonzero(~self._lacked[self.low - self._origin : self.high - self._origin])
        if len(held) < gap:
            return _NO_POSITIONS
        return self.lacked(self.low, max(self.low, min(self.low + int(held[-gap]), end)))

    def lost(self, overtaken: np.ndarray, now: float, timer: RetransmissionTimer) -> np.ndarray:
        """Return the overtaken positions to request now: each after about a round trip, then once in a time-out.

        A position that this member never requested counts from the moment at which it was first found overtaken: the
        result is perhaps only late.

        Parameters
        ----------
        overtaken : numpy.ndarray
            int64, ascending.
        now : float
            Time in seconds.
        timer : RetransmissionTimer
            Gives both times.

        Returns
        -------
        numpy.ndarray
            int64, ascending.
        """
        if not len(overtaken):
            return overtaken
        at = overtaken - self._origin
        self._requested_at[at[self._requested_at[at] == -math.inf]] = now
        due = np.where(
            self._requests[at] > 1, min(now - timer.base_s, self.newest_request_at), now - timer.reordering_s
        )
        return overtaken[self._requested_at[at] <= due]

    def probes(self, overtaken: np.ndarray, end: int, now: float, timer: RetransmissionTimer) -> np.ndarray:
        """Return the positions to request after a time-out without any result.

        These are the lowest one, all overtaken ones, and the last ones, whose results show what is lost below them
        (RFC 8985, section 7). All but the lowest one are left alone for a time-out after a request.

        Parameters
        ----------
        overtaken : numpy.ndarray
            int64, ascending.
        end : int
            One above the highest position that may be requested.
        now : float
            Time in seconds.
        timer : RetransmissionTimer
            Gives the time for which a requested segment is left alone.

        Returns
        -------
        numpy.ndarray
            int64, ascending.
        """
        last = self.lacked(self.low, end)[-(_PROBES_LOSSY if timer.lossy else _PROBES) :]
        wanted = np.concatenate([overtaken, last])
        overdue = wanted[self._requested_at[wanted - self._origin] <= now - timer.base_s]
        return np.unique(np.append(overdue, self.low))

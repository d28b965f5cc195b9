"""The number of segments that a member has in flight.

The switch itself loses no result. But a host with small buffers, or an ordinary switch with several members behind it,
may lose results of a long burst, and resending them causes the next long burst.

A network that loses frames also loses contributions. So results are lost in bursts if the switch had to resend a
quarter of the last results, and if these are at least three quarters of those for which this member retransmitted its
contribution. The window then narrows to 8 segments, and by half each further time. After 256 collectives the member
tries the switch's full window again.
"""

from iswitch.wire import HEADER, TAIL_BYTES

__all__ = ["SendWindow", "in_flight_max"]

_RESULTS = 64
"""Results that are judged together."""
_NARROW, _LEAST = 8, 2
_NARROW_COLLECTIVES = 256
_OVERHEAD = 2
"""The kernel counts up to twice a datagram's bytes."""


def in_flight_max(elements: int, buffer_bytes: int) -> int:
    """Return the number of segments for which a socket has room, with the kernel's overhead: at least 1.

    A member of an asynchronous job also receives the results of updates to which it does not contribute, so for such a
    member this limits its own contributions and requests only.

    Parameters
    ----------
    elements : int
        4-byte elements in a segment.
    buffer_bytes : int
        The socket's receive buffer.
    """
    return max(1, buffer_bytes // (_OVERHEAD * (HEADER.itemsize + 4 * elements + TAIL_BYTES)))


class SendWindow:
    """Counts results, and gives the number of segments that may be in flight as `size`.

    Parameters
    ----------
    most : int
        The switch's window, in segments.
    narrows : bool
        False if the size stays `most`: results of other members' updates are resent without a contribution.
    """

    def __init__(self, most: int, *, narrows: bool = True):
        self.most = self.size = most
        self._narrows = narrows
        self._results = self._retransmitted = self._resent = self._collectives = 0

    def record_results(self, results: int, *, retransmitted: int, resent: int) -> None:
        """Record new results.

        Parameters
        ----------
        results : int
            Their number.
        retransmitted : int
            The number of those for which this member retransmitted its contribution.
        resent : int
            The number of those that the switch resent.
        """
        self._results += results
        self._retransmitted += retransmitted
        self._resent += resent
        if self._results < _RESULTS:
            return
        if self._narrows and 4 * self._resent >= self._results and 4 * self._resent >= 3 * self._retransmitted:
            self.size = min(self.size, max(_LEAST, min(_NARROW, self.size // 2)))
            self._collectives = _NARROW_COLLECTIVES
        self._results = self._retransmitted = self._resent = 0

    def end_collective(self) -> None:
        """Count a collective, and reopen the window after `_NARROW_COLLECTIVES` of them with a narrow one."""
        self._collectives -= 1
        if not self._collectives:
            self.size = self.most

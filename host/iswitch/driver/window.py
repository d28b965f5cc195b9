"""How many segments a member has in flight.

A port's queue of results holds fewer of them than the switch's window. Where one member is behind a port it does not
fill: results leave as fast as contributions come. Where several are, each result leaves once for each of them, and a
burst of contributions can fill the queue. The switch then drops results, counts them as `TX_DROP_RESULT`, and sends
them again on demand.

A network that loses frames loses contributions, too. So if the switch had to send a quarter of the last results again,
and these are three quarters of those for which this member sent its contribution again, the queue has overflowed. Then
the window narrows to 8 segments, and by half each further time. After 256 collectives the switch's whole window is
tried again.
"""

__all__ = ["SendWindow"]

_RESULTS = 64
"""Results that are looked at together."""
_NARROW, _LEAST = 8, 2
_NARROW_COLLECTIVES = 256


class SendWindow:
    """Counts results and gives the number of segments that may be in flight.

    Parameters
    ----------
    most : int
        The switch's window, in segments.
    """

    def __init__(self, most: int):
        self.most = self.size = most
        self._results = self._asked = self._resent = self._collectives = 0

    def count(self, results: int, asked: int, resent: int) -> None:
        """Take notice of new results: how many, how many for which the contribution was sent again, how many that the
        switch sent again."""
        self._results += results
        self._asked += asked
        self._resent += resent
        if self._results < _RESULTS:
            return
        if 4 * self._resent >= self._results and 4 * self._resent >= 3 * self._asked:
            self.size = min(self.size, max(_LEAST, min(_NARROW, self.size // 2)))
            self._collectives = _NARROW_COLLECTIVES
        self._results = self._asked = self._resent = 0

    def end_collective(self) -> None:
        """Count a collective, and open the window again when a narrow one has been in use for long enough."""
        self._collectives -= 1
        if not self._collectives:
            self.size = self.most

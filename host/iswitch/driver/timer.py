"""The retransmission timer: RFC 6298, for sums that also wait for other workers.

1. A time-out runs from the last new result, or from the last time-out.
2. The time-out is the smoothed delay of results plus four deviations, at least 2 ms above the smoothed delay
   (RFC 6298).
3. A delay runs from the sending of a contribution, or from the collective's first result if that came later.
4. Only contributions that were sent once give delays (Karn's algorithm).
5. The first result of a collective also waits for the slowest worker's computation, so its delay has its own estimate.
6. A contribution that another worker lost delays results as a slow network does, and time-outs that follow would grow
   with each other. So a time-out is at most four times the least of the last 32 delays, or 50 ms above it.
7. A result that the switch had to resend proves loss. For 256 collectives from then on, two lower quartiles of the
   last delays replace the 50 ms, but 2 to 20 ms. The median would not do: if 20 % of all frames are lost, most results
   of four workers wait for a retransmission of one of them. For a collective's first result 2 ms replace the 50 ms,
   because a needless retransmission there costs only one frame.
8. Each time-out without a result doubles the next one up to 0.25 s, so a worker that computes causes few
   retransmissions. In a lossy network (7) it doubles up to 20 ms only: other workers' lost contributions, too, end in
   time-outs here.
9. Any new result ends the doubling. RFC 6298 waits for the next measured delay, because TCP doubles against congestion.
   Here the doubling is for workers that are not ready yet, and a result shows that they are.
10. A contribution that later results have overtaken is retransmitted after a smoothed delay (RFC 5827). It is
    retransmitted again after the length of a time-out, if the result of a contribution that was sent later has come
    (RFC 8985).
"""

from collections import deque

__all__ = ["RetransmissionTimer"]

_FIRST_S = 0.05
_LEAST_MARGIN_S, _MARGIN_S, _LOSSY_MARGIN_S = 0.002, 0.05, 0.02
_BACKOFF_CAP_S, _LOSSY_BACKOFF_CAP_S = 0.25, 0.02
_LAST = 32
_LOSSY_COLLECTIVES = 256


class _Delays:
    """Smoothed delay, deviation, and the last delays, in seconds.

    Parameters
    ----------
    quartiles : int
        In a lossy network, the time-out exceeds the least of the last delays by at most this number of their lower
        quartiles.
    """

    def __init__(self, quartiles: int) -> None:
        self._quartiles = quartiles
        self.smoothed_s: float | None = None
        self._deviation_s = 0.0
        self._last: deque[float] = deque(maxlen=_LAST)
        self._timeouts_s: dict[bool, float] = {}  # by `lossy`, since the last delay

    def add(self, *delays_s: float) -> None:
        """Record delays, the earliest first."""
        self._timeouts_s.clear()
        self._last.extend(delays_s)
        smoothed_s, deviation_s = self.smoothed_s, self._deviation_s
        for delay_s in delays_s:
            if smoothed_s is None:
                smoothed_s, deviation_s = delay_s, delay_s / 2
            else:
                deviation_s += (abs(smoothed_s - delay_s) - deviation_s) / 4
                smoothed_s += (delay_s - smoothed_s) / 8
        self.smoothed_s, self._deviation_s = smoothed_s, deviation_s

    def timeout_s(self, lossy: bool) -> float:
        """Return the time-out without doubling, or 0 if there is no delay yet."""
        if self.smoothed_s is None:
            return 0.0
        if lossy not in self._timeouts_s:
            least_s, margin_s = min(self._last), _MARGIN_S
            if lossy:
                quartile_s = sorted(self._last)[len(self._last) // 4]
                margin_s = min(max(self._quartiles * quartile_s, _LEAST_MARGIN_S), _LOSSY_MARGIN_S)
            self._timeouts_s[lossy] = min(
                self.smoothed_s + max(4 * self._deviation_s, _LEAST_MARGIN_S), max(4 * least_s, least_s + margin_s)
            )
        return self._timeouts_s[lossy]


class RetransmissionTimer:
    """Records delays and gives time-outs, both in seconds.

    Parameters
    ----------
    cap_s : float
        The longest time-out.
    """

    def __init__(self, *, cap_s: float = 1.0):
        self.cap_s, self.floor_s = cap_s, _LEAST_MARGIN_S
        self._results, self._first_results = _Delays(quartiles=2), _Delays(quartiles=0)
        self._lossy_collectives = 0  # that are left
        self._backoff = 1

    @property
    def delay_s(self) -> float | None:
        """The smoothed delay, or None if there is no delay yet."""
        return self._results.smoothed_s

    @property
    def lossy(self) -> bool:
        """True if the network lost a result in one of the last collectives."""
        return self._lossy_collectives > 0

    @property
    def base_s(self) -> float:
        """The time-out without doubling. A contribution that was retransmitted is left alone for this time."""
        lossy = self.lossy
        measured_s = self._results.timeout_s(lossy) or self._first_results.timeout_s(lossy)
        return min(measured_s or _FIRST_S, self.cap_s)

    @property
    def timeout_s(self) -> float:
        """The time from the last new result, or the last time-out, to the next time-out."""
        return self._doubled(self.base_s)

    @property
    def first_timeout_s(self) -> float:
        """The same before a collective's first result."""
        return self._doubled(min(max(self.base_s, self._first_results.timeout_s(self.lossy)), _BACKOFF_CAP_S))

    @property
    def reordering_s(self) -> float:
        """The time for which a contribution that was sent once is left alone although later results have come: about a
        round trip."""
        return max(self.floor_s / 2, self.delay_s or 0.0)

    def add_delay(self, *delays_s: float) -> None:
        """Record the delays of contributions that were sent once, in a collective that has results, the earliest first.
        Ends the doubling."""
        self._results.add(*delays_s)
        self._backoff = 1

    def add_first_delay(self, delay_s: float) -> None:
        """Record the time from a collective's begin to its first result."""
        self._first_results.add(delay_s)
        self._lossy_collectives = max(0, self._lossy_collectives - 1)

    def record_loss(self) -> None:
        """Record that the network has certainly lost a result."""
        self._lossy_collectives = _LOSSY_COLLECTIVES

    def back_off(self) -> None:
        """Double the next time-out, after a time-out without a result."""
        self._backoff = min(2 * self._backoff, 1 << 20)

    def end_backoff(self) -> None:
        """End the doubling, because a new result has come."""
        self._backoff = 1

    def _doubled(self, timeout_s: float) -> float:
        if self._backoff == 1:  # the usual case
            return min(timeout_s, self.cap_s)
        longest_s = _LOSSY_BACKOFF_CAP_S if self.lossy else _BACKOFF_CAP_S
        return min(max(timeout_s, min(timeout_s * self._backoff, longest_s)), self.cap_s)

"""When to send again: RFC 6298 for sums that wait for other workers too.

1. A time-out runs from the last new result, or from the last time-out.
2. It is the smoothed delay of results and four deviations of it, at least 2 ms above the smoothed delay (RFC 6298).
3. A delay runs from the sending of a contribution, or from the collective's first result if that came later.
4. Only contributions that were sent once give delays (Karn's algorithm).
5. The first result of a collective also waits for the slowest worker's computation, so its delay has an estimate of its
own.
6. A contribution that another worker lost delays results just as a slow network does, and time-outs that follow would
grow with each other.
   So a time-out is at most four times the least of the last 32 delays, or 50 ms above it.
7. A result that the switch had to send again proves loss. For 256 collectives from then on, two medians of the last
delays take the place
   of the 50 ms if they are less, and 2 ms for a collective's first result, where a needless repeat costs only one
   frame.
8. Each time-out without a result doubles the next one up to 0.25 s, so a worker that computes causes few repeats.
9. Any new result ends the doubling. RFC 6298 waits for the next measured delay, since TCP doubles against congestion;
here the doubling is
   for workers that are not there yet, and a result shows that they are.
10. A contribution that later results have overtaken is sent again after a smoothed delay (RFC 5827). It is sent once
more after a time-out's
    length if the result of a contribution that was sent later is here (RFC 8985).
"""

from collections import deque

__all__ = ["RetransmissionTimer"]

_FIRST_S = 0.05
_LEAST_MARGIN_S, _MARGIN_S = 0.002, 0.05
_BACKOFF_CAP_S = 0.25
_LAST = 32
_LOSSY_COLLECTIVES = 256


class _Delays:
    """Smoothed delay, deviation, and the last ones, in seconds.

    Parameters
    ----------
    medians : int
        In a lossy network the time-out is at most so many medians of the last delays above the least of them.
    """

    def __init__(self, medians: int) -> None:
        self._medians = medians
        self.smoothed_s: float | None = None
        self._deviation_s = 0.0
        self._last: deque[float] = deque(maxlen=_LAST)
        self._known: dict[bool, float] = {}

    def add(self, delay_s: float) -> None:
        self._known.clear()
        self._last.append(delay_s)
        if self.smoothed_s is None:
            self.smoothed_s, self._deviation_s = delay_s, delay_s / 2
        else:
            self._deviation_s += (abs(self.smoothed_s - delay_s) - self._deviation_s) / 4
            self.smoothed_s += (delay_s - self.smoothed_s) / 8

    def timeout_s(self, *, lossy: bool) -> float:
        """Return the time-out without any doubling; 0 if nothing was measured."""
        if self.smoothed_s is None:
            return 0.0
        if lossy not in self._known:
            least_s, margin_s = min(self._last), _MARGIN_S
            if lossy:
                margin_s = min(
                    max(self._medians * sorted(self._last)[len(self._last) // 2], _LEAST_MARGIN_S), _MARGIN_S
                )
            self._known[lossy] = min(
                self.smoothed_s + max(4 * self._deviation_s, _LEAST_MARGIN_S), max(4 * least_s, least_s + margin_s)
            )
        return self._known[lossy]


class RetransmissionTimer:
    """Measure delays and give time-outs, both in seconds.

    Parameters
    ----------
    cap_s : float
        The longest time-out.
    """

    def __init__(self, *, cap_s: float = 1.0):
        self.cap_s, self.floor_s = cap_s, _LEAST_MARGIN_S
        self._results, self._firsts = _Delays(medians=2), _Delays(medians=0)
        self._lossy_collectives = 0  # so many more
        self._backoff = 1

    @property
    def delay_s(self) -> float | None:
        """The smoothed delay, if one was measured."""
        return self._results.smoothed_s

    @property
    def lossy(self) -> bool:
        """A result was lost in one of the last collectives."""
        return self._lossy_collectives > 0

    @property
    def base_s(self) -> float:
        """The time-out without its doubling, and so the time for which a contribution that was sent again is left
        alone."""
        measured_s = self._results.timeout_s(lossy=self.lossy) or self._firsts.timeout_s(lossy=self.lossy)
        return min(measured_s or _FIRST_S, self.cap_s)

    @property
    def timeout_s(self) -> float:
        """From the last new result, or the last time-out, to the next time-out."""
        return self._doubled(self.base_s)

    @property
    def first_timeout_s(self) -> float:
        """The same before a collective's first result."""
        return self._doubled(min(max(self.base_s, self._firsts.timeout_s(lossy=self.lossy)), _BACKOFF_CAP_S))

    @property
    def patience_s(self) -> float:
        """How long a contribution that was sent once is left alone when later results have overtaken its own: about a
        round trip."""
        return max(self.floor_s / 2, self.delay_s or 0.0)

    def sample(self, delay_s: float) -> None:
        """Take the delay of what was sent once; of a contribution in a collective that has had results. Ends the
        doubling."""
        self._results.add(delay_s)
        self._backoff = 1

    def sample_first(self, delay_s: float) -> None:
        """Take the time from a collective's begin to its first result."""
        self._firsts.add(delay_s)
        self._lossy_collectives = max(0, self._lossy_collectives - 1)

    def lost(self) -> None:
        """Note that a result was lost for certain."""
        self._lossy_collectives = _LOSSY_COLLECTIVES

    def back_off(self) -> None:
        """Double the next time-out, after one without a result."""
        self._backoff = min(2 * self._backoff, 1 << 20)

    def restart(self) -> None:
        """End the doubling: a new result has come."""
        self._backoff = 1

    def _doubled(self, timeout_s: float) -> float:
        return min(max(timeout_s, min(timeout_s * self._backoff, _BACKOFF_CAP_S)), self.cap_s)

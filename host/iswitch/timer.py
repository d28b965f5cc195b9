"""When to send again: an adaptive time-out after RFC 6298."""

__all__ = ["RetransmissionTimer"]


class RetransmissionTimer:
    """Smoothed delay and its deviation give the time-out; each expiry doubles it until a delay was measured again.

    Times in seconds. `sample` must be given only delays of segments that were sent once, and nothing else ends the doubling
    (Karn's algorithm): an answer to what was sent twice does not say that the time-out is long enough. `restart` is for expiries that
    did not wait for the network.
    """

    def __init__(self, *, first_s: float = 0.05, floor_s: float = 0.002, cap_s: float = 1.0):
        self.floor_s, self.cap_s = floor_s, cap_s
        self.delay_s: float | None = None
        self._deviation_s = 0.0
        self._base_s = first_s
        self._backoff = 1

    @property
    def timeout_s(self) -> float:
        """From the last sign of progress, or the last expiry, to the next."""
        return min(self._base_s * self._backoff, self.cap_s)

    @property
    def patience_s(self) -> float:
        """How long a segment sent once is left alone by the fast retransmission: about a round trip."""
        return max(self.floor_s / 2, self.delay_s or 0.0)

    @property
    def patience_again_s(self) -> float:
        """The same of one sent again: a time-out, without its doubling."""
        return self._base_s

    def sample(self, delay_s: float) -> None:
        if self.delay_s is None:
            self.delay_s, self._deviation_s = delay_s, delay_s / 2
        else:
            self._deviation_s += (abs(self.delay_s - delay_s) - self._deviation_s) / 4
            self.delay_s += (delay_s - self.delay_s) / 8
        self._base_s = min(self.delay_s + max(4 * self._deviation_s, self.floor_s), self.cap_s)
        self._backoff = 1

    def back_off(self) -> None:
        if self._base_s * self._backoff < self.cap_s:
            self._backoff *= 2

    def restart(self) -> None:
        self._backoff = 1

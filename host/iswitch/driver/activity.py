"""How regularly a process runs the driver. The switch evicts the worker of a process that does not run it for long."""

__all__ = ["ActivityMeter"]


class ActivityMeter:
    """Measures the longest time between two moments at which the driver ran.

    The driver runs several times in the time after which the switch evicts a silent member: in a collective, while it
    waits for an answer, and in the keepalive thread. A longer time means that native code held the interpreter's lock,
    or that the process was stopped.

    Parameters
    ----------
    now : float
        Time in seconds, of the transport's clock.
    """

    def __init__(self, now: float):
        self.restart(now)

    def restart(self, now: float) -> None:
        """Begin to measure at this time, in seconds."""
        self._last = self._ended_at = now
        self.longest_s = 0.0
        """The longest time between two calls of `mark`, in seconds."""

    def mark(self, now: float) -> None:
        """Record that the driver runs at this time, in seconds."""
        if now - self._last > self.longest_s:
            self.longest_s, self._ended_at = now - self._last, now
        self._last = now

    def forget(self, before: float) -> None:
        """Drop the longest time if it ended before this time: the switch has accepted a contribution since then."""
        if self._ended_at < before:
            self.longest_s = 0.0

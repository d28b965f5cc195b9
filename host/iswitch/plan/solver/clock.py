"""The time limit that all parts of a search share, its progress, and its end on Ctrl-C."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Clock", "Progress", "stop_requested", "stopping_on_interrupt"]

Progress = Callable[[str, float, float], None]
"""Receives the scheme that is sought, the Gb/s of the best plan so far, and the Gb/s that no plan exceeds."""

_stop = threading.Event()


def stop_requested() -> bool:
    """Return True if the user pressed Ctrl-C: each search then ends with its best plan so far."""
    return _stop.is_set()


@contextmanager
def stopping_on_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C end all searches inside with their best plans, and the second one end the program."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if _stop.is_set():
            raise KeyboardInterrupt
        _stop.set()

    _stop.clear()
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _stop.clear()


class Clock:
    """A time limit.

    Parameters
    ----------
    time_s : float
        Time limit in seconds, from now.
    progress : Progress, optional
        Called for each better plan or bound.

    Raises
    ------
    ValueError
        If the time limit is not above 0.
    """

    def __init__(self, time_s: float, progress: Progress | None = None):
        if not time_s > 0:
            raise ValueError(f"time_s must be above 0, not {time_s!r}")
        self.began = time.perf_counter()
        self.time_s, self.progress = time_s, progress
        self._reported: tuple[str, float, float] | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left; 0 after Ctrl-C."""
        return 0.0 if stop_requested() else max(self.time_s - self.seconds, 0.0)

    def part(self, fraction: float, most_s: float = float("inf")) -> "Clock":
        """Return a clock for a fraction of the time that is left, at most so many seconds."""
        return Clock(max(min(self.left * fraction, most_s), 1e-9), self.progress)

    def report(self, scheme: str, rate_gbps: float, bound_gbps: float) -> None:
        """Report a plan's rate and its bound, if either is new."""
        news = (scheme, round(rate_gbps, 6), round(min(bound_gbps, 1e12), 6))
        if self.progress and news != self._reported:
            self._reported = news
            self.progress(scheme, rate_gbps, bound_gbps)

"""The time limit that all parts of a search share, its progress, and its end on Ctrl-C."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Clock", "OutOfTime", "Progress", "is_stoppable", "reporting", "stop_requested", "stopping_on_interrupt"]

Progress = Callable[[str, float, float], None]
"""Receives the scheme that is sought, the Gb/s of the best plan so far, and the Gb/s that no plan exceeds."""

_stop = threading.Event()
_stoppable = threading.Event()
_listeners: list[Progress] = []


def stop_requested() -> bool:
    """Return True if the user pressed Ctrl-C: each search then ends with its best plan so far."""
    return _stop.is_set()


def is_stoppable() -> bool:
    """Return True if Ctrl-C may end a search of this thread."""
    return _stoppable.is_set() and threading.current_thread() is threading.main_thread()


@contextmanager
def reporting(progress: Progress) -> Iterator[None]:
    """Let all clocks inside report to a function."""
    _listeners.append(progress)
    try:
        yield
    finally:
        _listeners.remove(progress)


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
    _stoppable.set()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _stoppable.clear()
        _stop.clear()


class OutOfTime(Exception):
    """The time ended before something was complete that is of no use in part."""


class Clock:
    """A time limit.

    Parameters
    ----------
    time_s : float
        Time limit in seconds, from now.

    Raises
    ------
    ValueError
        If the time limit is not above 0.
    """

    def __init__(self, time_s: float):
        if not time_s > 0:
            raise ValueError(f"time_s must be above 0, not {time_s!r}")
        self.began = time.perf_counter()
        self.time_s = time_s

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left; 0 after Ctrl-C."""
        return 0.0 if stop_requested() else max(self.time_s - self.seconds, 0.0)

    def check(self) -> None:
        """Raise OutOfTime if no time is left."""
        if not self.left:
            raise OutOfTime

    def part(self, fraction: float, most_s: float = float("inf")) -> "Clock":
        """Return a clock for a fraction of the time that is left, at most so many seconds."""
        return Clock(max(min(self.left * fraction, most_s), 1e-9))

    @staticmethod
    def report(scheme: str, rate_gbps: float, bound_gbps: float) -> None:
        """Report a plan's rate and its bound to the functions of `reporting`."""
        for progress in _listeners:
            progress(scheme, rate_gbps, bound_gbps)

"""Waiting in tests for what nobody tells of, such as a file that another process writes."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

_LOOK_S = 0.02

T = TypeVar("T")


def until(holds: Callable[[], T], seconds: float, *, unless: Callable[[], object] = lambda: None) -> T:
    """Looks again and again until `holds` returns what is true, and returns that. AssertionError after so many seconds,
    or once `unless` is true, of which that is then the message."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert not (obstacle := unless()), obstacle
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(_LOOK_S)
    return found

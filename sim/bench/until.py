"""Waiting in tests for a condition without a notification, such as a file that another process writes."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

_LOOK_S = 0.02

T = TypeVar("T")


def until(holds: Callable[[], T], seconds: float, *, unless: Callable[[], object] = lambda: None) -> T:
    """Poll until `holds` returns a true value, and return that. Raises AssertionError after so many seconds, or once
    `unless` is true, with that as the message."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert not (obstacle := unless()), obstacle
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(_LOOK_S)
    return found

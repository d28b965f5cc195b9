"""Exceptions of a signal handler at a chosen place, for tests: what Ctrl-C does to a program that catches it."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Interrupt", "interrupted"]


class Interrupt(Exception):
    """What the handler raises."""


def interrupted(call: Callable[[], object], place: int, *, package: str = "iswitch") -> bool:
    """Call a function in this thread, and raise Interrupt at a place in the package.

    CPython runs a signal handler when a Python function begins or goes on, after a call of a C function, and at the end
    of a loop's body. A profile function raises at one of the places of the first two kinds.

    Parameters
    ----------
    call : callable
        The function. If it catches Interrupt, the rest of it runs undisturbed.
    place : int
        The number of the place among all that the call comes to, from 0 on.
    package : str
        Only places in this package count.

    Returns
    -------
    bool
        True if the call came to the place.
    """
    left, inside = place, f"/{package}/"

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event in ("call", "c_return") and inside in frame.f_code.co_filename:
            left -= 1
            if left == -1:
                sys.setprofile(None)
                raise Interrupt

    sys.setprofile(profile)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.setprofile(None)
    return left < 0

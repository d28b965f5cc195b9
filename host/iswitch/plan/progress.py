"""What the planner shows while it searches: the best plan so far, its bound, and the time.

A terminal has one line that changes. Elsewhere a line is printed now and then, so that a log stays short.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from iswitch.plan.output.words import format_gbps
from iswitch.plan.solver.clock import Progress

__all__ = ["showing_progress"]

FIRST_S, EVERY_S = 3.0, 2.0
"""Seconds to the first line, and between lines. A terminal is updated at most ten times a second."""
TERMINAL_S = 0.1

err = Console(stderr=True)


@contextmanager
def showing_progress(time_s: float) -> Iterator[Progress]:
    """Show the progress of a search on standard error, and yield the function that receives it.

    Parameters
    ----------
    time_s : float
        The time limit, which is shown.
    """
    began = time.perf_counter()
    shown = {"": began + (0.0 if err.is_terminal else FIRST_S) - EVERY_S}
    last = [""]
    status = Status("planning; Ctrl-C ends with the best plan so far", console=err) if err.is_terminal else None

    def show(scheme: str, rate_gbps: float, bound_gbps: float) -> None:
        now = time.perf_counter()
        if now < shown[""] + (TERMINAL_S if status else EVERY_S):
            return
        text = progress_line(scheme, rate_gbps, bound_gbps)
        if text == last[0] and not status:
            return
        shown[""], last[0] = now, text
        line = f"{text}; {now - began:.0f} of {time_s:g} s"
        if status:
            status.update(f"{line}; Ctrl-C ends with the best plan so far")
        else:
            err.print(line, highlight=False, markup=False, soft_wrap=True)

    if status:
        with status:
            yield show
    else:
        yield show


def progress_line(scheme: str, rate_gbps: float, bound_gbps: float) -> str:
    """Return the best plan of a scheme so far, its bound and its gap in words."""
    if not rate_gbps or bound_gbps == float("inf"):
        return f"{scheme}: {format_gbps(rate_gbps)} Gb/s"
    gap = max(bound_gbps / rate_gbps - 1, 0.0)
    return f"{scheme}: {format_gbps(rate_gbps)} of at most {format_gbps(bound_gbps)} Gb/s ({gap:+.1%})"

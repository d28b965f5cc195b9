"""Measurements on a machine that has other work, too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["before_others", "run_before_others"]


def run_before_others(pid: int | None = 0) -> None:
    """Let a process (default: this one) run whenever it can, before all programs of usual priority.

    Raises
    ------
    PermissionError
        If this process may not do that; root may.
    """
    try:
        os.sched_setscheduler(pid or 0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError as error:
        raise PermissionError("only root may give a process real-time priority (SCHED_FIFO)") from error


@contextmanager
def before_others(realtime: bool) -> Iterator[None]:
    """Let this process run before others within the context, if `realtime` is True."""
    if realtime:
        run_before_others()
    try:
        yield
    finally:
        if realtime:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

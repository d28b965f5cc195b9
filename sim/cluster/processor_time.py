"""Processor time of functions, and of other processes."""

import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["add_cpu_s", "median_cpu_s", "process_cpu_s"]

_PROCESS_CLOCK = 2
"""The last three bits of the number of a process's clock (CPUCLOCK_SCHED of Linux). The others: its id, inverted."""


def add_cpu_s(function: Callable[[], Any], times_s: list[float]) -> None:
    """Call a function, and append its processor time in seconds."""
    begun_s = time.process_time()
    function()
    times_s.append(time.process_time() - begun_s)


def median_cpu_s(function: Callable[[], Any], repetitions: int = 9) -> float:
    """Return the median processor time of a function, in seconds."""
    times_s: list[float] = []
    for _ in range(repetitions):
        add_cpu_s(function, times_s)
    return statistics.median(times_s)


def process_cpu_s(pid: int) -> float:
    """Return the processor time of all threads of a process so far, in seconds, with the kernel's resolution.

    Raises
    ------
    OSError
        If there is no such process.
    """
    return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)

"""Processes in virtual time: generators that yield the seconds they take, or a signal they wait for."""

import heapq
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

__all__ = ["Process", "Processor", "Signal", "Simulation"]


class Signal:
    """What processes wait for. `fire` lets those that wait now go on."""

    def __init__(self) -> None:
        self.waiting: list[Process] = []


Process = Generator[float | Signal, None, Any]
"""A process. It yields seconds, which then pass, or a `Signal`, for which it then waits."""


class Simulation:
    """A clock, and what happens when.

    Attributes
    ----------
    now_s : float
        The time, in seconds.
    running : Process, optional
        The process that runs now.
    on_wait : list of callable
        Called with a process when it begins to wait for a signal, and when it has ended.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.running: Process | None = None
        self.on_wait: list[Callable[[Process], None]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._running = 0

    def call_at(self, time_s: float, function: Callable[[], None]) -> None:
        """Call a function at that time, after all that were set for it before."""
        self._serial += 1
        heapq.heappush(self._events, (time_s, self._serial, function))

    def start(self, process: Process) -> None:
        """Begin a process at the present time."""
        self._running += 1
        self.call_at(self.now_s, partial(self._step, process))

    def fire(self, signal: Signal) -> None:
        """Let the processes that wait for a signal go on."""
        waiting, signal.waiting = signal.waiting, []
        for process in waiting:
            self.call_at(self.now_s, partial(self._step, process))

    def run(self) -> float:
        """Let time pass until all processes have ended, and return the time.

        Raises
        ------
        RuntimeError
            If processes wait for signals that nothing fires.
        """
        while self._events:
            self.now_s, _, function = heapq.heappop(self._events)
            function()
        if self._running:
            raise RuntimeError(f"{self._running} processes wait for ever")
        return self.now_s

    def _step(self, process: Process) -> None:
        self.running = process
        try:
            wait = next(process)
        except StopIteration:
            self._running -= 1
            self._leave(process)
            return
        if isinstance(wait, Signal):
            wait.waiting.append(process)
            self._leave(process)
        else:
            self.call_at(self.now_s + wait, partial(self._step, process))

    def _leave(self, process: Process) -> None:
        for function in self.on_wait:
            function(process)


class Processor:
    """The cores that processes share, first come, first served.

    Parameters
    ----------
    simulation : Simulation
        The clock.
    cores : int, optional
        Number of cores; None: as many as processes.
    until_wait : bool
        If True, a process keeps its core until it waits for a signal, as with real-time priority. If False, until the
        end of each use.
    """

    def __init__(self, simulation: Simulation, cores: int | None = None, *, until_wait: bool = False):
        self._simulation, self._free = simulation, cores
        self._queue: deque[Signal] = deque()
        self._holders: list[Process] = []
        self._until_wait = until_wait
        if until_wait:
            simulation.on_wait.append(self._release_holder)
        self.busy_s = 0.0
        """Seconds of all cores that were used."""

    def spend(self, seconds: float) -> Process:
        """Let the time of a core pass, which is taken."""
        yield seconds

    def use(self, seconds: float) -> Process:
        """Use a core for that time."""
        self.busy_s += seconds
        if self._free is None or self._simulation.running in self._holders:
            yield from self.spend(seconds)
            return
        if not self._free:
            self._queue.append(turn := Signal())
            yield turn  # the core is handed over, not freed
        else:
            self._free -= 1
        if self._until_wait and self._simulation.running is not None:
            self._holders.append(self._simulation.running)
        yield from self.spend(seconds)
        if not self._until_wait:
            self._release()

    def _release_holder(self, process: Process) -> None:
        if process in self._holders:
            self._holders.remove(process)
            self._release()

    def _release(self) -> None:
        if self._queue:
            self._simulation.fire(self._queue.popleft())
        elif self._free is not None:
            self._free += 1

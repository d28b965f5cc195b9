"""A fabric in virtual time: as fast as it can be computed when busy, at once when idle, and the same for the same
seeds.

Each switch's clock ticks at whole multiples of its period, on one grid for all switches. A frame from a wire enters at
the first tick at or after its arrival. A frame that leaves is on the wire at the end of the cycle in which its last
word left. Both are exact, because the switches run in steps no longer than the least latency of a wire out of them: a
frame that leaves in a step cannot arrive within that step.
"""

import heapq
from collections.abc import Callable

from sim.emulator.engine import Frame
from sim.emulator.fabric import Fabric, Node
from sim.emulator.faults import PS_PER_US

__all__ = ["CLOCK_HZ", "PS_PER_S", "VirtualTime"]

CLOCK_HZ = 200_000_000
PS_PER_S = 10**12
LATENCY_CYCLES_LEAST = 16
"""Least latency of a wire out of a switch: the shortest step after which a board can be seen to be idle."""
TICK_US = 1000
"""How often an idle switch runs for its own timers."""


class VirtualTime:
    """`run` lets time pass. All attachments must have been plugged in before.

    `clock_hz` is the clock of all switches, `tick_us` how often idle switches run a few cycles for their timers. Events
    at one time happen in this order: timers in the order in which they were set, then ports in order. Raises ValueError
    if an attachment lives in wall time, or is plugged in by a wire that takes no time (80 ns at 200 MHz) from the
    switch.
    """

    def __init__(self, fabric: Fabric, *, clock_hz: int = CLOCK_HZ, tick_us: int = TICK_US):
        if clock_hz < 1:
            raise ValueError(f"VirtualTime clock_hz must be at least 1, not {clock_hz!r}")
        if tick_us < 1:
            raise ValueError(f"VirtualTime tick_us must be at least 1, not {tick_us!r}")
        least_ps = LATENCY_CYCLES_LEAST * PS_PER_S // clock_hz
        latencies = [max(PS_PER_US, least_ps)]  # a switch's time does not change within a step
        for switch, node in enumerate(fabric.nodes):
            for port in node.ports:
                if port.attachment and port.attachment.wall:
                    raise ValueError(
                        f"virtual time is for ends in this process, not for {port.attachment.address} at "
                        f"{switch}:{port.number}"
                    )
                if port.outbound:
                    latencies.append(port.outbound.latency_ps)
                    if latencies[-1] < least_ps:
                        raise ValueError(
                            f"in virtual time a frame out of {switch}:{port.number} must take "
                            f"{least_ps / PS_PER_US:g} us at least, "
                            f"not {latencies[-1] / PS_PER_US:g}: give the wire a rate or a delay"
                        )
        self._step_ps = min(latencies)
        self.fabric, self.clock_hz = fabric, clock_hz
        self.now_ps = 0
        self._tick_ps = tick_us * PS_PER_US
        self._clocks = [_Clock(node, clock_hz) for node in fabric.nodes]
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._stopped = False

    @property
    def now_us(self) -> int:
        """Return the switches' time."""
        return self.now_ps // PS_PER_US

    def call_at(self, time_ps: int, function: Callable[[], None]) -> None:
        """Call a function at that time, or at the start of the next `run` if the time has passed."""
        self._serial += 1
        heapq.heappush(self._timers, (time_ps, self._serial, function))

    def stop(self) -> None:
        """Make `run` return after the events that are due now."""
        self._stopped = True

    def run(self, until_ps: int | None = None) -> int:
        """Let time pass until that time, until `stop`, or until no event is left, and return the time. Events due at
        that time have happened then."""
        self._stopped = False
        while True:
            self._handle_due_events()
            if self._stopped:
                return self.now_ps
            ends = [time_ps for time_ps in (self._due_ps(), until_ps) if time_ps is not None]
            if until_ps is not None and self.now_ps >= until_ps:
                return self.now_ps
            if not any(clock.running for clock in self._clocks):
                if not ends:
                    return self.now_ps
                tick = self.now_ps - self.now_ps % self._tick_ps + self._tick_ps
                self.now_ps = min(*ends, tick)
                if self.now_ps == tick:
                    for clock in self._clocks:
                        clock.wake(tick)
                continue
            now_us, self.now_ps = self.now_us, min([*ends, self.now_ps + self._step_ps])
            for clock in self._clocks:
                if clock.running:
                    clock.run_to(self.now_ps, now_us)

    def _due_ps(self) -> int | None:
        """Return the time of the next event outside the switches."""
        times = [time_ps for wire in self.fabric.wires() if (time_ps := wire.due_ps) is not None]
        return min(times + [timer[0] for timer in self._timers[:1]], default=None)

    def _handle_due_events(self) -> None:
        """Handle all events that are due now, and those that follow from them at once."""
        moved = True
        while moved:
            moved = False
            while self._timers and self._timers[0][0] <= self.now_ps:
                heapq.heappop(self._timers)[2]()
                moved = True
            for clock in self._clocks:
                for port in clock.node.ports:
                    moved |= port.deliver(self.now_ps)
                    if port.enter(self.now_ps):
                        clock.wake(self.now_ps)


class _Clock:
    """A board's cycles on the grid of all clocks. An idle board skips ticks."""

    def __init__(self, node: Node, clock_hz: int):
        self.node, self.clock_hz = node, clock_hz
        self._left_out = 0
        self.running = True  # what a switch does after its reset

    def _tick(self, time_ps: int) -> int:
        """Return the first tick at or after a time."""
        return -(-time_ps * self.clock_hz // PS_PER_S)

    def _time_ps(self, tick: int) -> int:
        return -(-tick * PS_PER_S // self.clock_hz)

    def wake(self, now_ps: int) -> None:
        if not self.running:
            self.running = True
            self._left_out = self._tick(now_ps) - self.node.board.cycles

    def run_to(self, time_ps: int, now_us: int) -> None:
        """Run to the first tick at or after a time, and no further than the board is busy."""
        board = self.node.board
        cycles = self._tick(time_ps) - board.cycles - self._left_out
        self.running = board.run(cycles, now_us) == cycles
        for port in self.node.ports:
            port.leave(self._left_ps)

    def _left_ps(self, frame: Frame) -> int:
        return self._time_ps(frame.last + 1 + self._left_out)

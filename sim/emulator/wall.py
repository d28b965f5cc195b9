"""A fabric in wall time, as fast as this machine can compute the switches."""

import select
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from sim.emulator.fabric import Fabric, Node
from sim.emulator.faults import PS_PER_US

__all__ = ["SLICE_CYCLES", "WallTime"]

SLICE_CYCLES = 1024
"""Cycles between two polls of the attachments while a switch is busy."""
IDLE_SECONDS = 0.02
"""The longest sleep: the switches' timers move on only when they run."""


class WallTime:
    """`serve` until `stop`. Frames without room in a switch stay in their attachment. Closing it closes the fabric.
    `rtl_seconds` and `busy_seconds` are processor time, in the switches and in all turns with work."""

    def __init__(self, fabric: Fabric, *, slice_cycles: int = SLICE_CYCLES):
        self.fabric, self.slice_cycles = fabric, slice_cycles
        self._started_ns = time.monotonic_ns()
        self._running = True
        self._waking, self._wake = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._waking, select.POLLIN)
        self.rtl_seconds, self.busy_seconds, self.busy_cycles = 0.0, 0.0, 0
        for port in fabric.ports():
            if port.attachment:
                self._poll.register(port.attachment.fileno(), select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the fabric, but not its boards."""
        self.fabric.close()
        self._waking.close()
        self._wake.close()

    @property
    def now_ps(self) -> int:
        """Return the picoseconds since the start: the time of the wires."""
        return (time.monotonic_ns() - self._started_ns) * 1000

    @property
    def now_us(self) -> int:
        """Return the microseconds since the start: the switches' time."""
        return self.now_ps // PS_PER_US

    def stop(self) -> None:
        """Make `serve` return; callable from a signal handler or another thread."""
        self._running = False
        with suppress(OSError):
            self._wake.send(b"!")

    def serve(self) -> None:
        """Carry frames until `stop`."""
        while self._running:
            if not self.turn():
                self.sleep()

    def turn(self) -> bool:
        """Serve attachments, wires, switches, wires and attachments once. Returns False if there was no work."""
        begun = time.thread_time()
        moved = False
        for port in self.fabric.ports():
            moved |= port.enter(self.now_ps)
        rtl_seconds, cycles = 0.0, 0
        for node in self.fabric.nodes:
            before = time.thread_time()
            ran = node.board.run(self.slice_cycles, self.now_us)
            rtl_seconds += time.thread_time() - before
            cycles += ran
            # A run that ends before its slice found nothing left to do.
            moved |= ran == self.slice_cycles
            moved |= self._leave(node)
        if moved:
            self.rtl_seconds += rtl_seconds
            self.busy_seconds += time.thread_time() - begun
            self.busy_cycles += cycles
        return moved

    def _leave(self, node: Node) -> bool:
        now_ps, moved = self.now_ps, False
        for port in node.ports:
            moved |= port.leave(lambda _: now_ps)
            moved |= port.deliver(now_ps)
        return moved

    def sleep(self) -> None:
        """Wait until an attachment or a wire has a frame, and no longer than the switches' timers may wait."""
        now_ps = self.now_ps
        due = [wire.due_ps for wire in self.fabric.wires()]
        seconds = min([IDLE_SECONDS, *(max(0, time_ps - now_ps) / 1e12 for time_ps in due if time_ps is not None)])
        for descriptor, event in self._poll.poll(1000 * seconds):
            if not event & select.POLLIN:  # an interface that was deleted: it would wake us forever
                self._poll.unregister(descriptor)

"""The word streams of the emitted Verilog under cocotb: sources, sinks, their stalls, and watchers of the handshake."""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cocotb.handle import SimHandleBase
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge

__all__ = ["Handshake", "HandshakeError", "Sink", "Source", "StreamBus", "Word", "bursts", "none", "until", "watch"]

Stalls = Iterator[bool]
"""For each cycle, whether to stall."""


def none(rng: random.Random, longest: int = 0) -> Stalls:
    return itertools.repeat(False)


def bursts(rng: random.Random, longest: int = 20) -> Stalls:
    """Yield stalls of up to `longest` cycles, with up to 12 cycles between them."""
    while True:
        yield from itertools.repeat(False, rng.randint(0, 12))
        yield from itertools.repeat(True, rng.randint(0, longest))


async def until(clk: SimHandleBase, holds: Callable[[], object], cycles: int = 20_000) -> None:
    """Wait until `holds` returns True, one check a cycle. Raises TimeoutError after so many cycles."""
    for _ in range(cycles):
        await RisingEdge(clk)
        if holds():
            return
    raise TimeoutError(f"not within {cycles} cycles")


class HandshakeError(Exception):
    """A stream broke the promise of every stream."""


class Word(NamedTuple):
    data: int
    count: int
    last: int
    error: int = 0


class Handshake:
    """The promise: an offered word stays, unchanged, until it is accepted; only a frame's last word may be short; and
    only the last word of a truncated frame, which has an error, is empty."""

    def __init__(self, name: str, bus_bytes: int):
        self.name, self.bus_bytes = name, bus_bytes
        self.waiting: Word | None = None
        self.inside = False

    def cycle(self, offered: Word | None, ready: bool) -> None:
        """Check the next cycle: the word, if `valid` was 1. Raises HandshakeError that names the breach."""
        if self.waiting is not None and offered is None:
            raise HandshakeError(f"{self.name}: an offered word was withdrawn")
        if self.waiting is not None and offered != self.waiting:
            raise HandshakeError(f"{self.name}: an offered word changed from {self.waiting} to {offered}")
        least = 0 if offered is not None and offered.last and offered.error else 1
        if offered is not None and not least <= offered.count <= self.bus_bytes:
            raise HandshakeError(f"{self.name}: a word of {offered.count} bytes")
        if offered is not None and not offered.last and offered.count != self.bus_bytes:
            raise HandshakeError(f"{self.name}: a short word before the end of its frame")
        self.waiting = None if ready else offered
        if offered is not None and ready:
            self.inside = not offered.last


class StreamBus:
    """The signals `<name>_data`, `_bytes`, `_last`, `_valid`, `_ready` and, if there is one, `_error` of the top."""

    def __init__(self, dut: SimHandleBase, name: str):
        self.name, self.clk = name, dut.clk
        self.data, self.count, self.last, self.valid, self.ready = (
            getattr(dut, f"{name}_{part}") for part in ("data", "bytes", "last", "valid", "ready")
        )
        self.error = getattr(dut, f"{name}_error", None)
        self.bus_bytes = len(self.data) // 8

    def word(self) -> Word | None:
        """Return the offered word. Unknown bits in it are an error of their own (ValueError)."""
        if not int(self.valid.value):
            return None
        return Word(
            int(self.data.value),
            int(self.count.value),
            int(self.last.value),
            int(self.error.value) if self.error is not None else 0,
        )


class Source:
    """Sends frames into the switch, one at a time, with stalls; in between, the bus carries noise."""

    def __init__(self, bus: StreamBus, stalls: Stalls, noise: Callable[[], int]):
        self.bus, self.stalls, self.noise = bus, stalls, noise
        self.frames: Queue[tuple[bytes, bool]] = Queue()
        self.idle = True
        bus.valid.value = 0

    def put(self, frame: bytes, error: bool = False) -> None:
        self.idle = False
        self.frames.put_nowait((frame, error))

    async def run(self) -> None:
        bus = self.bus
        while True:
            self.idle = self.frames.empty()
            frame, error = await self.frames.get()
            for at in range(0, len(frame), bus.bus_bytes):
                while next(self.stalls):
                    bus.data.value = self.noise() % (1 << 8 * bus.bus_bytes)
                    bus.last.value = self.noise() % 2
                    await RisingEdge(bus.clk)
                part = frame[at : at + bus.bus_bytes]
                last = at + bus.bus_bytes >= len(frame)
                bus.data.value, bus.count.value = int.from_bytes(part, "little"), len(part)
                bus.last.value, bus.error.value, bus.valid.value = int(last), int(last and error), 1
                await RisingEdge(bus.clk)
                while not int(bus.ready.value):
                    await RisingEdge(bus.clk)
                bus.valid.value = 0


class Sink:
    """Takes frames, with stalls. `frames`: their bytes or, with `marked`, bytes and whether they had an error."""

    def __init__(self, bus: StreamBus, stalls: Stalls, *, marked: bool = False):
        self.bus, self.stalls, self.marked = bus, stalls, marked
        self.frames: list[Any] = []
        bus.ready.value = 0

    async def run(self) -> None:
        frame, ready = b"", False
        while True:
            await RisingEdge(self.bus.clk)
            if ready and (word := self.bus.word()):
                frame += word.data.to_bytes(self.bus.bus_bytes, "little")[: word.count]
                if word.last:
                    self.frames.append((frame, bool(word.error)) if self.marked else frame)
                    frame = b""
            ready = not next(self.stalls)
            self.bus.ready.value = int(ready)


async def watch(bus: StreamBus, handshake: Handshake) -> None:
    """Check every cycle of a stream."""
    while True:
        await RisingEdge(bus.clk)
        handshake.cycle(bus.word(), bool(int(bus.ready.value)))

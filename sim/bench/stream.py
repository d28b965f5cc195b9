"""A bench around one component: streams driven and collected, every promise of the handshake watched, every strobe
counted.

Everything here acts like a register of the design: it sees values before the clock's edge and changes them after it.
Cycles are counted from the first edge, so latencies are differences of `times`.
"""

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from amaranth.hdl import Module, Shape, ShapeCastable, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, Out
from amaranth.sim import Simulator

__all__ = [
    "STALLS",
    "Bench",
    "BrokenPromiseError",
    "Sink",
    "Source",
    "from_words",
    "pack",
    "to_words",
    "unpack",
    "watch",
]

STALLS = [0.0, 0.5]
"""Shares of cycles in which a source or a sink stalls, for parametrized tests."""

JUNK = b"\xa5"
"""After a frame's end the bus carries arbitrary data."""


def pack(shape, item) -> int:
    """Return the bits of an item: a number, or names and values of a layout's fields, which are items again."""
    width = Shape.cast(shape).width
    if not isinstance(item, dict):
        return int(item) % (1 << width)
    layout, bits = data.Layout.cast(shape), 0
    for name, value in item.items():
        bits |= pack(layout[name].shape, value) << layout[name].offset
    return bits


def unpack(shape, bits: int):
    return shape.from_bits(bits) if isinstance(shape, ShapeCastable) else bits


def to_words(
    frame: bytes,
    bus_bits: int,
    *,
    error: bool = False,
    truncated: bool = False,
    first: bool = False,
    parity: bool = False,
    meta: Any = None,
) -> list[dict[str, Any]]:
    """Return the words of a frame as items for a stream of `hw.stream.packet.Packet`.

    Parameters
    ----------
    frame : bytes
        The frame.
    bus_bits : int
        Width of the stream's data.
    error : bool
        Whether the last word says that the frame is damaged.
    truncated : bool
        Whether the last word says that a port had no room for the whole frame.
    first : bool
        Whether the words of the stream have `first`.
    parity : bool
        Whether the words of the stream have `parity`, which is right here.
    meta : item, optional
        Value of `meta`, for a stream whose words have it.
    """
    size = bus_bits // 8
    parts = [frame[at : at + size] for at in range(0, len(frame), size)]
    words = [
        {
            "data": int.from_bytes(part.ljust(size, JUNK), "little"),
            "count": 0 if truncated and k == len(parts) - 1 else len(part),
            "last": k == len(parts) - 1,
            "error": (error or truncated) and k == len(parts) - 1,
            **({"first": k == 0} if first else {}),
            **({"meta": meta} if meta is not None else {}),
        }
        for k, part in enumerate(parts)
    ]
    if parity:
        for word in words:
            word["parity"] = sum(word[name].bit_count() for name in ("data", "count", "last")) % 2
    return words


def from_words(words: Iterable[Any], bus_bits: int) -> list[bytes]:
    """Return the frames that a stream of `hw.stream.packet.Packet` carried; only the last word of a frame may be
    short."""
    frames, parts = [], b""
    for word in words:
        if not word.last and word.count != bus_bits // 8:
            raise AssertionError(f"from_words count must be {bus_bits // 8} before the last word, not {word.count}")
        parts += int(word.data).to_bytes(bus_bits // 8, "little")[: word.count]
        if word.last:
            frames.append(parts)
            parts = b""
    if parts:
        raise AssertionError(f"from_words frames must end, not stop after {len(parts)} bytes")
    return frames


class BrokenPromiseError(AssertionError):
    """A stream withdrew an offered item."""


async def watch(ctx, watched, name: str = "stream", held: Any = None) -> None:
    """Check that an offered item is held: once valid, a stream stays valid with the same payload until it was ready.

    `held`: what of the payload must stay. Default: all.
    """
    promised = None
    payload = Value.cast(watched.payload if held is None else held)
    async for _, _, valid, ready, bits in ctx.tick().sample(watched.valid, watched.ready, payload):
        if promised is not None and not (valid and bits == promised):
            raise BrokenPromiseError(f"{name} offered {promised:#x} and then " + (f"{bits:#x}" if valid else "nothing"))
        promised = bits if valid and not ready else None


class Source:
    """Sends `items`; in a share `stalls` of cycles it does not offer the next one.

    `offered` and `times` are the cycles in which an item was offered first and accepted. `beside` is called with an
    item's index for values of other signals that go with it. `pauses` has by an item's index the cycles that pass
    before the item is offered.
    """

    def __init__(
        self,
        target,
        items: Iterable[Any] = (),
        *,
        stalls: float = 0,
        seed: int = 0,
        start: int = 0,
        beside: Callable[[int], Iterable[tuple[Any, int]]] | None = None,
        pauses: Mapping[int, int] | None = None,
    ) -> None:
        self.pauses = pauses or {}
        self.target, self.shape = target, target.payload.shape()
        self.items = [pack(self.shape, item) for item in items]
        self.stalls, self.rng, self.start, self.beside = stalls, random.Random(seed), start, beside
        self.offered: list[int] = []
        self.times: list[int] = []

    @property
    def done(self) -> bool:
        return len(self.times) == len(self.items)

    async def process(self, ctx) -> None:
        payload, width = Value.cast(self.target.payload), Shape.cast(self.shape).width
        offering, cycle = False, -1
        async for _, _, ready in ctx.tick().sample(self.target.ready):
            cycle += 1
            if offering and ready:
                self.times.append(cycle)
                offering = False
                if pause := self.pauses.get(len(self.times), 0):
                    self.start = cycle + pause
                    ctx.set(self.target.valid, 0)
            if offering or cycle < self.start:
                continue
            offering = not self.done and self.rng.random() >= self.stalls
            ctx.set(self.target.valid, offering)
            if offering:
                bits = self.items[len(self.times)]
                for signal, value in self.beside(len(self.times)) if self.beside else ():
                    ctx.set(signal, value)
                ctx.set(payload, bits - (1 << width) if payload.shape().signed and bits >> (width - 1) else bits)
                self.offered.append(cycle + 1)


class Sink:
    """Collects `items` and the cycles `times` in which they came; in a share `stalls` of cycles it is not ready.

    It begins to be ready in cycle `start`, and only when an item has waited for `wait` cycles; with `holds` it stays
    ready until it has got an item. `besides` are the values of the signals `beside` in those cycles.
    """

    def __init__(
        self,
        target,
        *,
        stalls: float = 0,
        seed: int = 0,
        start: int = 0,
        beside: Iterable[Any] = (),
        holds: bool = False,
        wait: int = 0,
    ) -> None:
        self.target, self.shape, self.beside = target, target.payload.shape(), list(beside)
        self.besides: list[list[Any]] = []
        self.holds, self.wait = holds, wait
        self.stalls, self.rng, self.start = stalls, random.Random(seed), start
        self.items: list[Any] = []
        self.times: list[int] = []

    async def process(self, ctx) -> None:
        always = self.target.signature.always_ready
        payload, cycle, waited = Value.cast(self.target.payload), -1, 0
        async for _, _, valid, ready, bits, *beside in ctx.tick().sample(
            self.target.valid, self.target.ready, payload, *self.beside
        ):
            cycle += 1
            if valid and ready:
                self.besides.append(beside)
                self.items.append(unpack(self.shape, bits))
                self.times.append(cycle)
            waited = waited + 1 if valid and not ready else 0
            if not always:
                kept = self.holds and ready and not valid
                due = cycle + 1 >= self.start and waited >= self.wait
                ctx.set(self.target.ready, kept or (due and self.rng.random() >= self.stalls))


class Bench:
    """A component in the simulator. Every output stream is watched, every port `stat_...` counted in `strobes`.
    `inputs` are constant ports. `held`, by the name of a stream: what of its payload an offered item holds, where that
    is not all."""

    def __init__(
        self,
        dut: Component,
        *,
        stalls: float = 0,
        seed: int = 0,
        inputs: Iterable[tuple[Any, int]] = (),
        held: Mapping[str, Any] | None = None,
    ) -> None:
        self.dut, self.stalls, self.seed = dut, stalls, seed
        self.sources: list[Source] = []
        self.sinks: list[Sink] = []
        self.strobes: dict[str, int] = {}
        self.cycles = 0
        top = Module()
        top.submodules.dut = dut
        top.d.sync += Signal().eq(0)  # a component may have no register
        self.simulator = Simulator(top)
        self.simulator.add_clock(1e-8)
        counted = []
        for path, member, port in outputs(dut):
            name = "_".join(map(str, path))
            if member.is_signature:
                self.process(functools.partial(watch, watched=port, name=name, held=(held or {}).get(name)))
            elif name.startswith("stat_"):
                self.strobes[name] = 0
                counted.append(port)

        async def count(ctx):
            async for _, _, *values in ctx.tick().sample(*counted):
                for name, value in zip(self.strobes, values, strict=True):
                    self.strobes[name] += value

        async def set_inputs(ctx):
            for port, value in inputs:
                ctx.set(port, value)

        if counted:
            self.process(count)
        if inputs:
            self.process(set_inputs)

    def process(self, function: Callable[..., Any]) -> None:
        self.simulator.add_process(function)

    def source(self, target, items: Iterable[Any] = (), **options: Any) -> Source:
        """Add a Source; it stalls as the bench does by default."""
        self.sources.append(Source(target, items, **{"stalls": self.stalls, "seed": self.next_seed()} | options))
        self.process(self.sources[-1].process)
        return self.sources[-1]

    def sink(self, target, **options: Any) -> Sink:
        self.sinks.append(Sink(target, **{"stalls": self.stalls, "seed": self.next_seed()} | options))
        self.process(self.sinks[-1].process)
        return self.sinks[-1]

    def next_seed(self) -> int:
        self.seed += 1
        return self.seed

    def record(self, signal: Value) -> list[int]:
        """Return a list that gets the value of `signal` in each cycle."""
        values: list[int] = []

        async def sample(ctx):
            async for _, _, value in ctx.tick().sample(signal):
                values.append(value)

        self.process(sample)
        return values

    def run(self, *, quiet: int = 30, limit: int = 20000, read: Iterable[Any] = ()) -> list[Any]:
        """Run until the sources are empty, all sinks have begun and no item has moved for `quiet` cycles. Raises
        TimeoutError after `limit`. Returns the values of the signals in `read` at the end."""
        values: list[Any] = []

        async def until(ctx):
            last, seen = max((end.start for end in (*self.sources, *self.sinks)), default=0), -1
            while last + quiet >= self.cycles or not all(source.done for source in self.sources):
                await ctx.tick()
                self.cycles += 1
                moved = sum(len(end.times) for end in (*self.sources, *self.sinks))
                last, seen = (last if moved == seen else max(last, self.cycles)), moved
                if self.cycles > limit:
                    left = [len(source.items) - len(source.times) for source in self.sources]
                    raise TimeoutError(f"Bench must be quiet within {limit} cycles; sources still hold {left} items")

            values.extend(ctx.get(signal) for signal in read)

        self.simulator.add_testbench(until)
        self.simulator.run()
        return values

    def drive(self, testbench: Callable[..., Any]) -> None:
        """Run `testbench` instead, for components without streams."""
        self.simulator.add_testbench(testbench)
        self.simulator.run()


def outputs(component: Component) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield path, member and object of every output stream and every single output port, with arrays split."""

    def walk(path, member, port, dimensions):
        if dimensions:
            for k in range(dimensions[0]):
                yield from walk((*path, k), member, port[k], dimensions[1:])
        elif member.is_port or isinstance(member.signature, stream.Signature):
            if member.flow == Out:
                yield path, member, port
        else:  # several streams together, such as a bus
            for name, inner in port.signature.members.items():
                yield from walk((*path, name), inner, getattr(port, name), inner.dimensions)

    for name, member in component.signature.members.items():
        yield from walk((name,), member, getattr(component, name), member.dimensions)

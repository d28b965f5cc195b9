"""Where the cycles of a sum go: `python -m sim.bench.stages`, with `--ports` and `--jobs` for other switches and loads.

The first table follows the contribution that completes a sum through an idle switch, from the ingress queue to a port:
in which cycle its first word is offered at each component's output, and why the component takes so long. Behind the
lanes it follows the first word of the sums. The result's header is ahead of them there, so the last row, its first
word, is earlier than the row before. The second table counts what each stream did while frames came as fast as the
switch took them, and the third names every bubble, a cycle in which no word passed the gate. The cycles are those of
Amaranth's simulation of the whole switch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from amaranth.hdl import Module
from rich.console import Console
from rich.table import Table

from hw.switch import Switch
from iswitch.config import Config
from iswitch.wire import ETHERTYPE_IPV4, Type
from sim.bench.stream import Bench, from_words, pack, to_words
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary, parse

__all__ = ["CONFIG", "LOADS", "Load", "Point", "Scene", "Step", "load", "path"]

CONFIG = Config(members=4, jobs=2, window=32, mac_entries=64)
"""The default data path with smaller tables, which a simulation erases sooner."""
IPV4 = ETHERTYPE_IPV4.to_bytes(2, "big")
WARM_FRAMES = 8
"""Frames that have left before bubbles are counted."""
QUIET_CYCLES = 12
LIMIT = 20_000


class Point(NamedTuple):
    """A stream on the path of a sum. `why`: what takes the cycles since the point before. `ahead`: words of the frame
    ahead of the one that is followed."""

    name: str
    stream: Any
    why: str
    ahead: int = 0


class Step(NamedTuple):
    """The cycle, from the frame's first word leaving its queue, in which the word that is followed was offered at a
    point, and, from its last word leaving its queue, that in which the last word left the point."""

    name: str
    first: int
    last: int
    why: str


class Load(NamedTuple):
    """What streams did between the first word and the last one of a load.

    `words`: words that passed the gate. `streams`: by name of a stream, how many cycles it moved an item, was stalled,
    and was empty. `bubbles`: by reason, the cycles in which no word passed the gate.
    """

    cycles: int
    words: int
    streams: dict[str, tuple[int, int, int]]
    bubbles: dict[str, int]


def opened(part: Any) -> Module:
    """Elaborate a component now, and have it elaborate to this module. So its parts can be watched."""
    module = part.elaborate(None)
    part.elaborate = lambda platform: module
    return module


class Scene:
    """A simulated switch, and so many jobs with a member of each behind each port."""

    def __init__(self, config: Config = CONFIG, jobs: int = 1) -> None:
        self.config = config
        self.dut = Switch(config)
        parts = opened(self.dut).submodules
        aggregator, port = opened(parts.aggregator).submodules, opened(parts.output_0).submodules
        self.parts, ahead = parts, config.header_words
        self.points = [
            Point("pipeline", parts.pipeline.o, "skid buffer behind the arbiter, which is combinational"),
            Point("parser.headers", parts.parser.headers, "header words gathered; the last one completes the item"),
            Point("core.verdicts", parts.core.verdicts, "rows read, compared, two steps of consequences, decision"),
            Point("gate.works", parts.gate.works, "register between core and gate"),
            Point("gate.contributions", parts.gate.contributions, "the operation is handed over first"),
            Point("sums", aggregator.sums.i, "a register, then the lanes: located, fitted, aligned, summed, rounded"),
            Point("composer.sums", aggregator.sums.o, "the FIFO of sums, which an item passes at once"),
            Point("results", parts.aggregator.results, "checksum inserter; the header has left before", ahead),
            Point("port.queue", port.results.o, "a register, beside the memory of the port's queue", ahead),
            Point("port.tx", parts.output_0.tx, "output register; the address is there since the header came", ahead),
            Point("port.tx, header", parts.output_0.tx, "the header words leave first"),
        ]
        self.bench = Bench(
            self.dut,
            inputs=[
                (self.dut.own_mac, int.from_bytes(SWITCH_MAC, "little")),
                (self.dut.own_ip, int.from_bytes(SWITCH_IP, "little")),
                (self.dut.seed, 1),
            ],
        )
        self.sources = [self.bench.source(rx) for rx in self.dut.rx]
        self.sinks = [self.bench.sink(tx) for tx in self.dut.tx]
        self.members = [
            Client.numbered(job * config.ports + port, port=port, job=job)
            for job in range(jobs)
            for port in range(config.ports)
        ]
        self.log: list[tuple[int, ...]] = []
        self.queues = [parts[f"queue_{port}"].o for port in range(config.ports)]
        self.watched = [*self.queues, *(point.stream for point in self.points), parts.parser.o]
        self.bench.process(self._watch)

    async def _watch(self, ctx: Any) -> None:
        signals = [signal for watched in self.watched for signal in (watched.valid, watched.ready)]
        extra = [self.parts.verdicts.valid, self.parts.core.headers.valid, self.parts.core.headers.ready]
        async for _, _, *values in ctx.tick().sample(*signals, *extra):
            self.log.append(tuple(values))

    def moves(self, cycle: int, stream: Any) -> tuple[int, int]:
        """Return `valid` and `ready` of a stream in a cycle of the log."""
        place = 2 * self.watched.index(stream)
        valid, ready = self.log[cycle][place : place + 2]
        return valid, ready

    async def settle(self, ctx: Any) -> None:
        """Run until the switch has been idle for a while."""
        quiet = 0
        for _ in range(LIMIT):
            await ctx.tick()
            quiet = 0 if ctx.get(self.dut.busy) or not all(source.done for source in self.sources) else quiet + 1
            if quiet == QUIET_CYCLES:
                return
        raise TimeoutError(f"the switch is still busy after {LIMIT} cycles")

    def offer(self, port: int, frame: bytes) -> None:
        source = self.sources[port]
        source.items += [pack(source.shape, word) for word in to_words(frame, self.config.bus_bits)]

    def received(self, port: int) -> list[bytes]:
        frames = from_words(self.sinks[port].items, self.config.bus_bits)
        self.sinks[port].items.clear()
        return frames

    async def join(self, ctx: Any) -> None:
        await self.settle(ctx)
        for settings in ({"world": self.config.ports, "elements": self.config.elements}, {}, {}):
            for member in self.members:
                self.offer(member.port, member.join(member=None if member.is_member else member.port, **settings))
                await self.settle(ctx)
                for frame in self.received(member.port):
                    member.take(frame)

    def play(self, scenario: Callable[[Any], Any]) -> None:
        async def testbench(ctx: Any) -> None:
            await self.join(ctx)
            await scenario(ctx)

        self.bench.drive(testbench)

    def results(self, port: int) -> int:
        """Return how many results a port has sent since the last call."""
        return sum(frame[12:14] == IPV4 and parse(frame).type == Type.RESULT for frame in self.received(port))


def path(elements: int, config: Config = CONFIG) -> list[Step]:
    """Follow the contribution that completes a sum of `elements` numbers through an idle switch.

    Raises RuntimeError if the sum does not leave by all ports.
    """
    scene = Scene(config)
    begun = 0

    async def scenario(ctx: Any) -> None:
        nonlocal begun
        for member in scene.members:
            begun = len(scene.log)
            scene.offer(member.port, member.contribution(member.first_seq, np.ones(elements, "<f4")))
            await scene.settle(ctx)

    scene.play(scenario)
    if any(scene.results(port) != 1 for port in range(config.ports)):
        raise RuntimeError("the sum did not leave by all ports")
    cycles = range(begun, len(scene.log))
    first = last = 0
    steps = []
    queue = Point("queue", scene.queues[scene.members[-1].port], "the frame is stored, and scanned")
    for point in [queue, *scene.points]:
        offered = [cycle for cycle in cycles if scene.moves(cycle, point.stream)[0]]
        moved = [cycle for cycle in cycles if all(scene.moves(cycle, point.stream))]
        if point.name == "queue":
            first, last = offered[0], moved[-1]
        followed = next(cycle for cycle in offered if not point.ahead or cycle > moved[point.ahead - 1])
        steps.append(Step(point.name, followed - first, moved[-1] - last, point.why))
    return steps


def contributions(scene: Scene, count: int, sizes: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield `count` contributions of each member, with these numbers of elements in turn."""
    for k in range(count):
        for member in scene.members:
            numbers = np.ones(sizes[k % len(sizes)], "<f4")
            behind = min(k, scene.config.window - 1)
            yield member.port, member.contribution(member.first_seq + k, numbers, behind=behind)


def full(scene: Scene) -> Iterator[tuple[int, bytes]]:
    return contributions(scene, 6, [scene.config.elements])


def minimum(scene: Scene) -> Iterator[tuple[int, bytes]]:
    return contributions(scene, 24, [1])


def mixed(scene: Scene) -> Iterator[tuple[int, bytes]]:
    """Yield contributions of several sizes, each with an ordinary frame behind it."""
    sizes = (1, scene.config.elements, 16, scene.config.elements // 4)
    for k, (port, frame) in enumerate(contributions(scene, 6, sizes)):
        yield port, frame
        member, to = scene.members[port], scene.members[(port + 1) % len(scene.members)]
        yield port, ordinary(to.mac, member.mac, (60, 1514)[k % 2])


def ordinary_frames(scene: Scene, *, count: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield `count` frames of so many bytes from each port to the next one."""
    stations = scene.members[: scene.config.ports]
    for _ in range(count):
        for member, to in zip(stations, [*stations[1:], stations[0]]):
            yield member.port, ordinary(to.mac, member.mac, size)


LOADS: dict[str, Callable[[Scene], Iterator[tuple[int, bytes]]]] = {
    "full": full,
    "minimum": minimum,
    "mixed": mixed,
    "ordinary, 60 bytes": partial(ordinary_frames, count=24, size=60),
    "ordinary, 1514 bytes": partial(ordinary_frames, count=6, size=1514),
}
"""The frames of each load, with the port to which each goes."""


def load(name: str, config: Config = CONFIG, jobs: int = 1) -> Load:
    """Send a load's frames as fast as the switch takes them, and count what its streams do, without the first frames.

    Raises RuntimeError if a sum does not leave by all ports.
    """
    scene = Scene(config, jobs)
    begun = sums = 0

    async def scenario(ctx: Any) -> None:
        nonlocal begun, sums
        begun = len(scene.log)
        for port, frame in LOADS[name](scene):
            scene.offer(port, frame)
            sums += port == 0 and frame[12:14] == IPV4
        await scene.settle(ctx)

    scene.play(scenario)
    if any(scene.results(port) != sums for port in range(config.ports)):
        raise RuntimeError(f"the {sums} sums did not leave by all ports")
    words = scene.parts.parser.o
    at = len(scene.watched) * 2
    decided = [cycle for cycle in range(begun, len(scene.log)) if all(scene.log[cycle][at + 1 : at + 3])]
    passed = [cycle for cycle in range(begun, len(scene.log)) if all(scene.moves(cycle, words))]
    # The load runs dry when the last headers are with the core.
    cycles = range(decided[WARM_FRAMES], decided[-1])
    streams = {}
    for point in scene.points[:-1]:
        pairs = Counter(scene.moves(cycle, point.stream) for cycle in cycles)
        moved, stalled = pairs[1, 1], pairs[1, 0]
        streams[point.name] = moved, stalled, len(cycles) - moved - stalled
    bubbles = Counter(_bubble(scene, cycle, words, at) for cycle in cycles if not all(scene.moves(cycle, words)))
    return Load(len(cycles), sum(cycle in cycles for cycle in passed), streams, dict(bubbles))


def _bubble(scene: Scene, cycle: int, words: Any, at: int) -> str:
    """Say why no word passes the gate in a cycle."""
    has_verdict, headers = scene.log[cycle][at], scene.log[cycle][at + 1]
    works, payload = scene.parts.gate.works, scene.parts.gate.contributions
    if not scene.moves(cycle, words)[0]:
        return "the parser has no word"
    if scene.moves(cycle, works) == (1, 0):
        return "the aggregator has not begun the operation before"
    if scene.moves(cycle, payload) == (1, 0):
        return "the aggregator has not taken the word before"
    if not has_verdict:
        return "the core decides, and more headers wait" if headers else "the core decides"
    return "the payload's operation has not been handed over"


def shown_path(sizes: Sequence[int], config: Config) -> Table:
    found = {elements: path(elements, config) for elements in sizes}
    table = Table("stage", title="cycle of the first word, of the last word")
    for elements in sizes:
        table.add_column(f"{elements} elements", justify="right")
    table.add_column("cycles", justify="right")
    table.add_column("why")
    before = 0
    for steps in zip(*found.values(), strict=True):
        step = steps[0]
        table.add_row(step.name, *(f"{each.first}, {each.last}" for each in steps), str(step.first - before), step.why)
        before = step.first
    return table


def main(
    ports: Annotated[int, typer.Option(min=2, max=16, help="Ports of the switch.")] = CONFIG.ports,
    jobs: Annotated[int, typer.Option(min=1, max=8, help="Jobs, each with a member behind each port.")] = 1,
) -> None:
    """Say in which stage each cycle of a sum is, how full each stage is, and what every bubble is."""
    console = Console()
    config = replace(CONFIG, ports=ports, members=ports, jobs=max(CONFIG.jobs, jobs))
    console.print(shown_path((1, 44, config.elements), config))
    table = Table("load", "stage", title="share of cycles")
    names = Table("load", "words a cycle", "a cycle without a word at the gate, because", "share", title="bubbles")
    for column in ("moves", "stalls", "empty"):
        table.add_column(column, justify="right")
    for name in LOADS:
        found = load(name, config, jobs)
        for stage, counts in found.streams.items():
            table.add_row(name, stage, *(f"{count / found.cycles:.3f}" for count in counts))
        rate = f"{found.words / found.cycles:.3f}"
        for reason, count in sorted(found.bubbles.items(), key=lambda item: -item[1]) or [("-", 0)]:
            names.add_row(name, rate, reason, f"{count / found.cycles:.3f}")
    console.print(table)
    console.print(names)


if __name__ == "__main__":
    typer.run(main)

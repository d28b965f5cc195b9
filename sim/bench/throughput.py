"""Words per cycle of the switch and the latency of a sum, counted in cycles on the emulated board."""

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from amaranth.sim import Simulator

from hw.ingress.packet_queue import PacketQueue
from iswitch.config import Config
from iswitch.wire import FRAME_BYTES, Format, Outcome, PortCounter
from iswitch.wire.formats import FORMATS
from sim.bench.hosts import Host
from sim.emulator.counters import counters
from sim.emulator.engine import Board, Frame
from sim.frames.client import Client, ordinary

__all__ = [
    "Mixed",
    "Throughput",
    "engine_khz",
    "joined",
    "latencies",
    "mixed",
    "ordinary_throughput",
    "queue_cycles",
    "stations",
    "throughput",
]

WORLD = 4
SETTLE_CYCLES = 20_000
NEVER = 1 << 40
ORDINARY_TYPE = ordinary(bytes(6), bytes(6))[12:14]


def joined(board: Board, *, format: Format, world: int = WORLD) -> list[Client]:
    """Return `world` members of job 0, one behind each port."""
    clients = [Client.numbered(k, port=k % board.config.ports) for k in range(world)]
    settings = {"world": world, "elements": board.config.elements, "format": format}
    for asked in (settings, {}, {}):
        for rank, client in enumerate(clients):
            board.send(client.port, client.join(member=None if client.is_member else rank, **asked))
            board.run(SETTLE_CYCLES)
            for frame in board.receive(client.port):
                client.take(frame.data)
    board.trace()
    while any([board.stamp(port) for port in range(board.config.ports)]):
        pass
    return clients


def words(config: Config, frame: bytes) -> int:
    return -(-len(frame) // config.bus_bytes)


class Throughput:
    """Figures of one run. `words`: all input words. `elements`: those of each frame. `cycles`: from the first word to
    the last word of the last result, so with filling and emptying of the switch. `khz`: speed of the board; `cpu_khz`:
    the same by processor time."""

    def __init__(self, words: int, cycles: int, frames: int, elements: int, khz: float, cpu_khz: float):
        self.words, self.cycles, self.frames, self.elements = words, cycles, frames, elements
        self.khz, self.cpu_khz = khz, cpu_khz

    @property
    def words_per_cycle(self) -> float:
        return self.words / self.cycles

    @property
    def elements_per_cycle(self) -> float:
        return self.frames * self.elements / self.cycles


def ones(format: Format, count: int) -> np.ndarray:
    """Return the elements of a payload of ones, as they are on the wire."""
    patterns = {Format.BF16: np.uint16(0x3F80), Format.FP16: np.uint16(0x3C00)}
    return np.full(count, patterns.get(format, np.float32(1)))


def throughput(
    board: Board, *, frames: int, elements: int, format: Format = Format.WINDOW64, duplicates: float = 0
) -> Throughput:
    """Send `frames` contributions from WORLD ports, as fast as the switch accepts them, with each sum sent to all
    ports. `duplicates` is the share of contributions that are sent twice, at once.

    Raises RuntimeError if the switch did not do all of the work: every contribution added, every result out of every
    port, no frame dropped, no handshake broken.
    """
    config = board.config
    clients = joined(board, format=format)
    segments = -(-frames // WORLD)
    payloads = np.random.default_rng(1).normal(size=(WORLD, elements)).astype("<f4")
    if FORMATS[format].is_half_width:
        payloads = np.tile(ones(format, elements), (WORLD, 1))
    chance = random.Random(1)
    board.limit(2 * segments)
    sent, repeated = Counter[int](), 0
    for k in range(segments):
        for client, payload in zip(clients, payloads, strict=True):
            frame = client.contribution(client.first_seq + k, payload, behind=min(k, config.window - 1), format=format)
            copies = 1 + (chance.random() < duplicates)
            repeated += copies - 1
            if not all(board.send(client.port, frame) for _ in range(copies)):
                raise RuntimeError("the board's queue is full")
            sent[words(config, frame)] += copies
    begun, busy = time.perf_counter(), time.process_time()
    ran = board.run(NEVER)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - busy
    out = [board.receive(port) for port in range(config.ports)]
    first = min(stamp.first for port in range(config.ports) if (stamp := board.stamp(port)))
    last = max(frame.last for frames in out for frame in frames)
    demand_all_done(board, out, segments, repeated)
    board.send(0, clients[0].end_job())
    board.run(SETTLE_CYCLES)
    for port in range(config.ports):
        board.receive(port)
    return Throughput(
        sum(size * count for size, count in sent.items()),
        last - first + 1,
        sent.total(),
        elements,
        ran / seconds / 1e3,
        ran / cpu_seconds / 1e3,
    )


def demand_all_done(board: Board, out: Iterable[list[Frame]], segments: int, repeated: int) -> None:
    outcomes = Counter(decision.outcome for decision in board.trace())
    if (
        outcomes[Outcome.ADDED] != WORLD * segments
        or outcomes[Outcome.DUPLICATE] != repeated
        or outcomes.total() != WORLD * segments + repeated
    ):
        raise RuntimeError(f"{WORLD * segments} contributions and {repeated} repeats became {dict(outcomes)}")
    results = [len(frames) for frames in out]
    # A repeat that comes after its sum is complete is answered with the result once more.
    if min(results) < segments or sum(results) > WORLD * segments + repeated:
        raise RuntimeError(f"{segments} sums became {results} results")
    demand_sound(board)


def demand_sound(board: Board) -> None:
    if broken := board.violations():
        raise RuntimeError(f"handshakes: {broken}")
    dropped = {
        name: count
        for name, count in counters(board).items()
        if any(counter.name in name for counter in PortCounter if counter.name.startswith("TX_DROP"))
    }
    if dropped:
        raise RuntimeError(f"dropped: {dropped}")


class Mixed(NamedTuple):
    """`words_per_cycle`: all input words, from the first of them to the last output word. `share_least`: when the first
    port has had all its frames decided, the share of the port served least."""

    words_per_cycle: float
    share_least: float


def stations(board: Board, ports: Sequence[int]) -> list[Host]:
    """Return a station behind each of these ports, known to the switch."""
    made = [Host(bytes([2, 0, 0, 0, 1, port]), bytes([10, 0, 2, port]), port) for port in ports]
    for station in made:
        board.send(station.port, ordinary(board.mac, station.mac))
        board.run(SETTLE_CYCLES)
    board.trace()
    while any([board.stamp(port) for port in range(board.config.ports)]):
        pass
    return made


def exchanged(board: Board, streams: dict[int, list[bytes]], results: Counter[int]) -> Mixed:
    """Run the ports' frames, the same number each, and check the output: at the partner of each port (0 and 1, 2 and 3)
    its ordinary frames, unchanged and in order, and so many frames of other kinds by port."""
    board.limit(max(map(len, streams.values())))
    for port, frames in streams.items():
        if board.send_many(port, frames) != len(frames):
            raise RuntimeError("the board's queue is full")
    board.run(NEVER)
    first = min(stamp.first for port in streams if (stamp := board.stamp(port)))
    last = 0
    for port in streams:
        out = board.receive(port)
        last = max([last, *(frame.last for frame in out)])
        passed = [frame.data for frame in out if frame.data[12:14] == ORDINARY_TYPE]
        if (
            passed != [frame for frame in streams[port ^ 1] if frame[12:14] == ORDINARY_TYPE]
            or len(out) - len(passed) != results[port]
        ):
            raise RuntimeError(
                f"port {port} sent {len(passed)} ordinary frames and {len(out) - len(passed)} others: not what it "
                "was to send"
            )
    demand_sound(board)
    had = Counter[int]()
    for decision in board.trace():
        had[decision.port] += 1
        if had[decision.port] == len(streams[decision.port]):
            break
    return Mixed(
        sum(words(board.config, frame) for frames in streams.values() for frame in frames) / (last - first + 1),
        min(had[port] for port in streams) / max(had.values()),
    )


def mixed(board: Board, *, frames: int, size: int = 1514) -> Mixed:
    """Measure ports 0 and 1 with full contributions and their sums, beside ports 2 and 3 with ordinary frames of `size`
    bytes to each other: `frames` from each. Raises RuntimeError if a frame is lost or changed."""
    members, hosts = joined(board, format=Format.WINDOW64, world=2), stations(board, (2, 3))
    config, payload = board.config, np.ones(board.config.elements, "<f4")
    streams = {
        member.port: [
            member.contribution(member.first_seq + k, payload, behind=min(k, config.window - 1)) for k in range(frames)
        ]
        for member in members
    }
    streams |= {
        host.port: numbered_frames(other, host, frames, size) for host, other in zip(hosts, hosts[::-1], strict=True)
    }
    return exchanged(board, streams, Counter({member.port: frames for member in members}))


def ordinary_throughput(board: Board, *, frames: int, size: int) -> Mixed:
    """Measure ports 0 and 1, and 2 and 3, that send each other `frames` ordinary frames of `size` bytes. Raises
    RuntimeError if a frame is lost or changed."""
    hosts = stations(board, range(4))
    return exchanged(
        board, {host.port: numbered_frames(hosts[host.port ^ 1], host, frames, size) for host in hosts}, Counter()
    )


def numbered_frames(to: Host, source: Host, frames: int, size: int) -> list[bytes]:
    plain = ordinary(to.mac, source.mac, size)
    return [plain[:14] + k.to_bytes(4) + plain[18:] for k in range(frames)]


def queue_cycles(config: Config) -> int:
    """Return the cycles from a frame's last word entering a port's queue to its first word at the queue's output,
    measured on the queue alone."""
    queue = PacketQueue(
        bus_bits=config.bus_bits,
        depth=config.queue_words,
        frame_bytes_max=config.frame_bytes_max,
        half_width=config.half_width,
    )
    seen: list[int] = []

    async def bench(ctx):
        words = 2 * FRAME_BYTES // config.bus_bytes
        for index in range(words):
            ctx.set(queue.i.payload, {"data": 1, "count": config.bus_bytes, "last": index == words - 1, "error": 0})
            ctx.set(queue.i.valid, 1)
            entered = index
            await ctx.tick()
        ctx.set(queue.i.valid, 0)
        cycle = entered + 1
        while not (ctx.get(queue.o.valid) and ctx.get(queue.scans.valid)):
            await ctx.tick()
            cycle += 1
            if cycle > 1000:
                raise TimeoutError("the queue does not show the frame")
        seen.append(cycle - entered)

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen[0]


class Latencies(NamedTuple):
    """Latencies in cycles, at the slowest port. `first`: first word of the completing contribution leaving its queue to
    first word of the result at a port's output. `last`: last word to last word, likewise. `whole`: the contribution's
    last word going in to the result's last word going out, with store and forward."""

    first: int
    last: int
    whole: int


def latencies(board: Board, elements: int, *, format: Format = Format.WINDOW64) -> Latencies:
    """Measure the latencies of a sum of `elements` numbers in an idle switch.

    The board stamps the entry of the last word. An idle switch takes the frame out of its queue in the cycle in which
    it appears at the output, `queue_cycles` later, and the others in the cycles that follow.
    """
    config = board.config
    clients = joined(board, format=format)
    payload = ones(format, elements)
    for client in clients[:-1]:
        board.send(client.port, client.contribution(client.first_seq, payload, format=format))
        board.run(SETTLE_CYCLES)
    final = clients[-1]
    while board.stamp(final.port):
        pass
    board.send(final.port, final.contribution(final.first_seq, payload, format=format))
    board.run(SETTLE_CYCLES)
    stamp = board.stamp(final.port)
    results = [board.receive(port)[-1] for port in range(config.ports)]
    board.send(0, final.end_job())
    board.run(SETTLE_CYCLES)
    for port in range(config.ports):
        board.receive(port)
    if stamp is None:
        raise RuntimeError("the board kept no stamps")
    leaves = stamp.last + queue_cycles(config)
    words = config.header_words + -(-payload.nbytes // config.bus_bytes)
    first, last = max(result.first for result in results), max(result.last for result in results)
    return Latencies(first - leaves, last - (leaves + words - 1), last - stamp.last)


def engine_khz(engine: str, *, frames: int, repetitions: int) -> tuple[float, float]:
    """Measure the median speed of a default board under `throughput`'s load of full frames, by wall time and by
    processor time: on a quiet machine they are the same."""
    with Board(Config(), engine=engine, trace=True, stamps=True) as board:
        runs = [throughput(board, frames=frames, elements=board.config.elements) for _ in range(repetitions)]
    return statistics.median(run.khz for run in runs), statistics.median(run.cpu_khz for run in runs)

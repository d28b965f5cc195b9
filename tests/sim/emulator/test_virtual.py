"""Virtual time: exact, the same for the same seeds, and quick where nothing happens. Hubs that pass frames on, in a
row."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from iswitch.config import Config
from sim.emulator.card import Card
from sim.emulator.endpoint import FrameEnd
from sim.emulator.engine import Board, Frame
from sim.emulator.fabric import Fabric
from sim.emulator.faults import PS_PER_US, Faults, Rates
from sim.emulator.link import Link
from sim.emulator.udp import UdpSocket
from sim.emulator.virtual import VirtualTime
from sim.emulator.wire import Wire
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, Reply, ordinary

CYCLE_PS = 5000
LEFT, RIGHT = b"\x02LEFT!", b"\x02RIGHT"


def numbered(number: int, size: int = 60) -> bytes:
    return ordinary(RIGHT, LEFT, 60)[:14] + number.to_bytes(4) + bytes(size - 18)


class Row:
    """Hubs in a row, each joined to the next by its port 1, and an end at either side, which notes when frames come."""

    def __init__(self, fabric: Fabric, cable_us: float):
        self.ends = [FrameEnd(), FrameEnd()]
        self.came: list[list[tuple[int, bytes]]] = [[], []]
        cable = lambda: Wire(Faults(Rates(delay_us=cable_us)))
        self.fabric = fabric
        last = len(fabric.nodes) - 1
        for side, place in enumerate([(0, 0), (last, 1)]):
            fabric.plug(place, self.ends[side], inbound=cable(), outbound=cable())
            self.ends[side].arrived = lambda side=side: self.came[side].extend(
                (self.time.now_ps, frame) for frame in self.ends[side].receive()
            )
        self.time = VirtualTime(fabric)


@contextmanager
def row(
    relay: Path, links: Sequence[Link], *, seed: int = 1, pcap: Path | None = None, cable_us: float = 0.5
) -> Iterator[Row]:
    with ExitStack() as stack:
        boards = [stack.enter_context(Board(path=relay, seed=seed)) for _ in range(len(links) + 1)]
        yield Row(stack.enter_context(Fabric(boards, links, seed=seed, pcap=pcap)), cable_us)


def captured(path: Path) -> list[tuple[int, bytes]]:
    """Time in ps and bytes, read by scapy."""
    return [(int(packet.time * 10**9) * 1000, bytes(packet[Ether])) for packet in rdpcap(str(path))]


@pytest.mark.parametrize(
    "rate_bps, delay_us", [(10**9, 0), (10**9, 5), (10 * 10**9, 0.1), (25 * 10**9, 0.333), (100 * 10**9, 1000.001)]
)
def test_rate_and_delay_of_a_link_are_exact(relay: Path, tmp_path: Path, rate_bps: int, delay_us: float) -> None:
    sizes = [60, 61, 64, 1514]
    with row(relay, [Link((0, 1), (1, 0), rate_bps, Rates(delay_us=delay_us))], pcap=tmp_path) as made:
        for number, size in enumerate(sizes):  # far from each other, at odd times
            made.time.call_at(
                number * 20_000_017, lambda number=number, size=size: made.ends[0].send(numbered(number, size))
            )
        made.time.run()
    entered = captured(tmp_path / "switch0port0.pcap")
    left, arrived = captured(tmp_path / "switch0port1.pcap"), captured(tmp_path / "switch1port0.pcap")
    assert [data for _, data in left] == [data for _, data in arrived] == [numbered(*pair) for pair in enumerate(sizes)]
    for number, ((in_ps, _), (left_ps, data), (arrived_ps, _), (came_ps, _)) in enumerate(
        zip(entered, left, arrived, made.came[1])
    ):
        # The first tick at which the frame can have come in; captures know nanoseconds.
        assert in_ps == (number * 20_000_017 + 500_000) // 1000 * 1000
        latency = Fraction(8 * (12 + len(data)) * 10**12, rate_bps) + Fraction(str(delay_us)) * PS_PER_US
        assert left_ps % CYCLE_PS == 0 and left_ps > in_ps + len(data) // 8 * CYCLE_PS
        assert arrived_ps == ceil(left_ps + latency) // 1000 * 1000
        assert came_ps == captured(tmp_path / "switch1port1.pcap")[number][0] + 500_000


class Watched(Board):
    """Keeps the frames that left, with their cycles."""

    def receive(self, port: int) -> list[Frame]:
        frames = super().receive(port)
        self.left = [*getattr(self, "left", []), *frames]
        return frames


@pytest.mark.parametrize("time_ps", [0, 1, 4999, 5000, 5001, 9999, 3_456_789_012_345])
@pytest.mark.parametrize("clock_hz", [1_000_000, 200_000_000, 322_265_625])
def test_frames_enter_at_the_first_tick_and_leave_with_the_end_of_their_last_cycle(
    relay: Path, time_ps: int, clock_hz: int
) -> None:
    """Ticks are on one grid from time 0, however long a board had nothing to do."""
    with Watched(path=relay) as board, Fabric([board]) as fabric:
        sender, came = FrameEnd(), FrameEnd()
        cable = lambda: Wire(Faults(Rates(delay_us=20)), rate_bps=10**9)
        fabric.plug((0, 0), sender, outbound=cable())
        fabric.plug((0, 1), came, outbound=cable())
        time_of, arrivals = VirtualTime(fabric, clock_hz=clock_hz), []
        came.arrived = lambda: arrivals.append(time_of.now_ps)
        start_ps = 500 * PS_PER_US
        time_of.run(start_ps + time_ps)
        idle = board.cycles
        sender.send(numbered(0))
        time_of.run()
        (frame,) = board.left
        first_tick = ceil(Fraction((start_ps + time_ps) * clock_hz, 10**12))
        left_ps = ceil(Fraction((first_tick + frame.last + 1 - idle) * 10**12, clock_hz))
        assert arrivals == [left_ps + 8 * 72 * 1000 + 20 * PS_PER_US]


@pytest.mark.parametrize("boards", [2, 3])
@pytest.mark.parametrize("cable_us", [0.08, 2.5])
def test_a_row_of_switches_passes_frames_in_order_both_ways(relay: Path, boards: int, cable_us: float) -> None:
    links = [Link((board, 1), (board + 1, 0), 10**10, Rates(delay_us=1)) for board in range(boards - 1)]
    sent = [[numbered(100 * side + number, 60 + 37 * number) for number in range(30)] for side in range(2)]
    with row(relay, links, cable_us=cable_us) as made:
        for end, frames in zip(made.ends, sent):
            for frame in frames:
                end.send(frame)
        made.time.run()
        assert [[frame for _, frame in came] for came in made.came] == [sent[1], sent[0]]
        assert all(left <= right for came in made.came for (left, _), (right, _) in pairwise(came))


def traffic(made: Row, seed: int) -> None:
    """Some bursts at random times from both ends, and an answer to every tenth frame."""
    rng = random.Random(seed)
    for number in range(200):
        end, size = rng.choice(made.ends), rng.choice([60, 61, 300, 1514])
        made.time.call_at(
            rng.randrange(3000 * PS_PER_US), lambda end=end, number=number, size=size: end.send(numbered(number, size))
        )
    made.time.run()


def history(relay: Path, folder: Path, seed: int) -> tuple[dict[str, bytes], list]:
    rates = Rates(loss=0.1, duplicate=0.1, reorder=0.1, corrupt=0.05, silent_corrupt=0.05, delay_us=3)
    links = [Link((0, 1), (1, 0), 10**9, rates), Link((1, 1), (2, 0), 10**8, rates, queue_frames=5)]
    with row(relay, links, seed=seed, pcap=folder) as made:
        traffic(made, 1)
        for node in made.fabric.nodes[:2]:
            assert node.ports[1].outbound is not None and node.ports[1].outbound.faults.counts["loss"] > 0
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}, made.came


def test_the_same_seed_gives_the_same_captures_byte_for_byte(relay: Path, tmp_path: Path) -> None:
    runs = [history(relay, tmp_path / name, seed) for name, seed in (("one", 1), ("again", 1), ("other", 2))]
    assert len(runs[0][0]) == 6 and runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]


def test_a_link_too_slow_drops_and_counts(relay: Path) -> None:
    with row(relay, [Link((0, 1), (1, 0), 10**8, queue_frames=10)]) as made:
        for number in range(100):
            made.ends[0].send(numbered(number, 1514))
        made.time.run()
        wire = made.fabric.nodes[0].ports[1].outbound
        assert wire is not None and len(made.came[1]) + wire.counts["dropped, queue full"] == 100
        assert 10 <= len(made.came[1]) < 20
        came = [int.from_bytes(frame[14:18]) for _, frame in made.came[1]]
        assert came == sorted(came) and came[:10] == list(range(10))
        spacing = {later - sooner for (sooner, _), (later, _) in zip(made.came[1][1:8], made.came[1][2:9])}
        assert max(abs(time_ps - 80_000 * (1514 + 24)) for time_ps in spacing) <= 4 * CYCLE_PS


def test_the_real_switch_sums_in_virtual_time() -> None:
    """Two workers at 10 Gb/s, a microsecond away; and the switch has nothing left to do when they have their result."""
    with Board(Config()) as board, Fabric([board]) as fabric:
        workers, ends = [Client.numbered(rank) for rank in range(2)], [FrameEnd(), FrameEnd()]
        for rank, end in enumerate(ends):
            cable = lambda: Wire(Faults(Rates(delay_us=1)), rate_bps=10**10)
            fabric.plug((0, rank), end, inbound=cable(), outbound=cable())
        time_of = VirtualTime(fabric)

        def exchange(frames: list[bytes]) -> tuple[int, list[list[Reply]]]:
            begun = time_of.now_ps
            for end, frame in zip(ends, frames):
                end.send(frame)
            return time_of.run() - begun, [
                [worker.take(frame) for frame in end.receive()] for worker, end in zip(workers, ends)
            ]

        exchange([worker.join(world=2, elements=8) for worker in workers])
        exchange([worker.join() for worker in workers])  # with the token, which confirms
        spent_ps, replies = exchange(
            [
                worker.contribution(worker.first_seq, np.full(8, rank + 1.5, np.float32))
                for rank, worker in enumerate(workers)
            ]
        )
        assert [[reply.numbers.view("<f4").tolist() for reply in got] for got in replies] == [[[4.0] * 8]] * 2
        assert 2 * PS_PER_US < spent_ps < 4 * PS_PER_US


def test_idle_time_costs_next_to_nothing(relay: Path) -> None:
    with row(relay, [Link((0, 1), (1, 0), 10**9), Link((1, 1), (2, 0), 10**9)]) as made:
        assert made.time.run() < PS_PER_US
        before = [node.board.cycles for node in made.fabric.nodes]
        assert made.time.run(10**13) == 10**13 == made.time.now_ps  # ten seconds, 2,000,000,000 cycles
        spent = [node.board.cycles - cycles for node, cycles in zip(made.fabric.nodes, before)]
        assert all(10_000 < cycles < 200_000 for cycles in spent)
        made.ends[0].send(numbered(1))
        made.time.run()
        assert 10**13 < made.came[1][0][0] < 10**13 + 10 * PS_PER_US


def test_timers_are_called_in_order_and_on_time(relay: Path) -> None:
    with row(relay, [Link((0, 1), (1, 0), 10**9)]) as made:
        called: list[tuple[str, int]] = []
        note = lambda name: called.append((name, made.time.now_ps))
        made.time.call_at(7_000_000, lambda: note("c"))
        made.time.call_at(
            5,
            lambda: (note("a"), made.time.call_at(5, lambda: note("a again")), made.time.call_at(9, lambda: note("b"))),
        )
        made.time.call_at(7_000_000, lambda: note("d"))
        made.time.run(6_999_999)
        assert called == [("a", 5), ("a again", 5), ("b", 9)]
        made.time.run(7_000_000)
        assert called[3:] == [("c", 7_000_000), ("d", 7_000_000)]
        made.time.call_at(3, lambda: note("late"))
        assert made.time.run() == 7_000_000 and called[5:] == [("late", 7_000_000)]


def test_stop_lets_happen_what_is_due_and_nothing_later(relay: Path) -> None:
    with row(relay, [Link((0, 1), (1, 0), 10**9)]) as made:
        called: list[int] = []
        for number, time_ps in enumerate([7, 7, 8]):
            made.time.call_at(time_ps, lambda number=number: (called.append(number), made.time.stop()))
        assert made.time.run() == 7 and called == [0, 1]
        assert made.time.run() == 8 and called == [0, 1, 2]


def test_virtual_time_refuses_what_it_cannot_hold(relay: Path) -> None:
    with Board(path=relay) as board, Fabric([board]) as fabric:
        fabric.plug((0, 1), UdpSocket(("127.0.0.1", 0), Card(SWITCH_MAC, SWITCH_IP)))
        with pytest.raises(
            ValueError, match=r"virtual time is for ends in this process, not for \('127.0.0.1', \d+\) at 0:1"
        ):
            VirtualTime(fabric)
    with Board(path=relay) as board, Fabric([board]) as fabric:
        fabric.plug((0, 1), FrameEnd(), outbound=Wire(rate_bps=10**10))
        with pytest.raises(ValueError, match=r"a frame out of 0:1 must take 0.08 us at least, not 0.0576"):
            VirtualTime(fabric)
        assert VirtualTime(fabric, clock_hz=400_000_000).now_us == 0
        with pytest.raises(ValueError, match="clock_hz must be at least 1, not 0"):
            VirtualTime(fabric, clock_hz=0)
        with pytest.raises(ValueError, match="tick_us must be at least 1, not 0"):
            VirtualTime(fabric, tick_us=0)

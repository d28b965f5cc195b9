"""The measurements of `make bench` measure what they say."""

import pytest

from iswitch.config import Config
from iswitch.wire import Format
from sim.bench.designs import HALF_WIDTH
from sim.bench.throughput import latencies, mixed, ordinary_throughput, queue_cycles, throughput
from sim.emulator.engine import Board

SMALL = Config(ports=2, bus_bits=64)
DOCUMENTED_QUEUE_CYCLES = 7
"""Of `hw.ingress.packet_queue.PacketQueue`."""


@pytest.mark.parametrize("config", [Config(), SMALL], ids=["256 bits", "64 bits"])
def test_queue_takes_the_cycles_it_says(config):
    assert queue_cycles(config) == DOCUMENTED_QUEUE_CYCLES


@pytest.mark.slow
@pytest.mark.parametrize("format", [Format.WINDOW64, Format.FP32])
@pytest.mark.parametrize("duplicates", [0, 0.05])
def test_full_frames_flow_at_nearly_a_word_per_cycle(format, duplicates):
    with Board(Config(), trace=True, stamps=True) as board:
        run = throughput(board, frames=800, elements=Config().elements, format=format, duplicates=duplicates)
    assert run.frames >= 800 and 0.99 < run.words_per_cycle <= 1


def test_as_many_half_width_elements_are_added_in_a_cycle_as_others():
    runs = []
    for format in (Format.BF16, Format.WINDOW64):
        with Board(HALF_WIDTH, trace=True, stamps=True) as board:
            runs.append(throughput(board, frames=400, elements=HALF_WIDTH.elements, format=format))
    halves, others = runs
    assert others.elements_per_cycle <= halves.elements_per_cycle <= HALF_WIDTH.lanes
    assert halves.words < others.words


def test_ordinary_frames_and_contributions_fill_the_bus_and_share_it():
    with Board(Config(), trace=True, stamps=True) as board:
        run = mixed(board, frames=300)
    assert 0.99 < run.words_per_cycle <= 1 and run.share_least >= 0.99


@pytest.mark.parametrize("size", [60, 1514])
def test_ordinary_frames_fill_the_bus(size):
    with Board(Config(), trace=True, stamps=True) as board:
        run = ordinary_throughput(board, frames=2000 if size == 60 else 300, size=size)
    assert 0.99 < run.words_per_cycle <= 1 and run.share_least >= 0.99


def test_a_lost_frame_is_reported():
    """As many cycles of transmission as there are frames: the queue of a port that may not send is full soon."""
    with Board(Config(), trace=True, stamps=True) as board, pytest.raises(RuntimeError, match="port 1 sent"):
        board.stall(1, "tx", 0.9)
        ordinary_throughput(board, frames=200, size=1514)


@pytest.mark.slow
def test_latency_does_not_depend_on_the_size():
    with Board(Config(), trace=True, stamps=True) as board:
        first, last, whole = zip(*(latencies(board, elements) for elements in (1, 44, 352)), strict=True)
    assert len(set(first)) == 1
    assert max(first) <= 40 and max(last) <= 41
    assert sorted(whole) == list(whole)


@pytest.mark.slow
def test_unfinished_work_is_reported():
    """A board that traces nothing has not shown that it added anything."""
    with Board(Config(), stamps=True) as board, pytest.raises(RuntimeError, match="contributions"):
        throughput(board, frames=8, elements=8)

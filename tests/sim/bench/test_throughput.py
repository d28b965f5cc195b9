"""The measurements of `make bench` measure what they say."""

import pytest
from iswitch.config import Config
from iswitch.wire import Format

from sim.bench.throughput import latencies, queue_cycles, throughput
from sim.emulator.engine import Board

SMALL = Config(ports=2, bus_bits=64)
DOCUMENTED_QUEUE_CYCLES = 6
"""Of `hw.queue.PacketQueue`."""


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


@pytest.mark.slow
def test_latency_does_not_depend_on_the_size():
    with Board(Config(), trace=True, stamps=True) as board:
        first, last, whole = zip(*(latencies(board, elements) for elements in (1, 44, 352)), strict=True)
    assert len(set(first)) == 1
    assert max(first) <= 40 and max(last) <= 41
    assert sorted(whole) == list(whole)


@pytest.mark.slow
def test_work_left_undone_is_told():
    """A board that traces nothing has not shown that it added anything."""
    with Board(Config(), stamps=True) as board, pytest.raises(RuntimeError, match="contributions"):
        throughput(board, frames=8, elements=8)

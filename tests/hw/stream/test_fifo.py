# amaranth: UnusedElaboratable=no
"""Items of any shape in order, as many as the memory holds."""

import pytest
from amaranth.lib import data

import hw.stream.fifo
from hw.stream.fifo import Fifo
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench


class Pair(data.Struct):
    left: 3
    right: 9


ITEMS = [{"left": k % 8, "right": 37 * k % 512} for k in range(40)]


def run(fifo=Fifo, *, depth=5, buffered=True, stalls=0.0, start=0):
    dut = fifo(Pair, depth=depth, buffered=buffered)
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.i, ITEMS), bench.sink(dut.o, start=start)
    assert bench.run(read=[dut.level]) == [0]
    assert [{"left": item.left, "right": item.right} for item in sink.items] == ITEMS
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("depth", [2, 5, 8])
def test_items_leave_in_order(depth, buffered, stalls):
    run(depth=depth, buffered=buffered, stalls=stalls)


@pytest.mark.parametrize(("buffered", "latency"), [(False, 1), (True, 2)])
def test_latency_and_one_item_per_cycle(buffered, latency):
    source, sink = run(buffered=buffered)
    assert sink.times == [taken + latency for taken in source.times]
    assert source.times == list(range(source.times[0], source.times[0] + len(ITEMS)))


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("depth", [2, 5, 8])
def test_depth_items_enter_while_the_output_stalls(depth, buffered):
    source, _ = run(depth=depth, buffered=buffered, start=40)
    assert sum(taken < 40 for taken in source.times) == depth


def test_level_counts_the_item_that_is_shown():
    dut = Fifo(8, depth=4)
    bench = Bench(dut)
    bench.source(dut.i, range(3))
    bench.sink(dut.o, start=30)
    levels = bench.record(dut.level)
    bench.run()
    assert levels[20] == max(levels) == 3


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.i.ready.eq(memory.w_rdy)", "self.i.ready.eq(1)"),
        ("memory.r_en.eq(self.o.ready)", "memory.r_en.eq(1)"),
        ("self.level.eq(memory.level)", "self.level.eq(1)"),
    ],
)
def test_a_mutant_of_the_fifo_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, TimeoutError)):
        run(mutant(hw.stream.fifo, sound, wrong).Fifo, stalls=0.5, start=40)


@pytest.mark.parametrize("depth", [0, 1])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"Fifo depth must be at least 2, not {depth}"):
        Fifo(8, depth=depth)

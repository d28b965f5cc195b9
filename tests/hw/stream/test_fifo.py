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
    ready, valid, level = (bench.record(signal) for signal in (dut.i.ready, dut.o.valid, dut.level))
    assert bench.run(read=[dut.level]) == [0]
    for takes, shows, inside in zip(ready, valid, level, strict=True):
        stored = inside - (shows and buffered)
        assert takes == (stored != depth - buffered) and (buffered or shows == (stored != 0))
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
        ("room.eq(leaves | (stored != places - 1))", "room.eq(1)"),
        ("room.eq(leaves | (stored != places - 1))", "room.eq(stored != places - 1)"),
        ("leaves.eq(filled & (~shown | self.o.ready))", "leaves.eq(filled)"),
        ("filled.eq(enters | (stored != 1))", "filled.eq(stored != 1)"),
        ("filled.eq(enters | (stored != 1))", "filled.eq(1)"),
        ("with m.If(enters != leaves):", "with m.If(enters):"),
        ("self.level.eq(stored + shown)", "self.level.eq(1)"),
    ],
)
def test_a_mutant_of_the_fifo_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, TimeoutError)):
        for buffered in (False, True):
            run(mutant(hw.stream.fifo, sound, wrong).Fifo, buffered=buffered, stalls=0.5, start=40)


@pytest.mark.parametrize("depth", [0, 1])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"Fifo depth must be at least 2, not {depth}"):
        Fifo(8, depth=depth)

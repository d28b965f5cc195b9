# amaranth: UnusedElaboratable=no
"""Items in order, at once where nothing is before them, and without a gap where they come without one."""

import pytest

import hw.stream.bypass_fifo
from hw.stream.bypass_fifo import BypassFifo
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

ITEMS = [37 * k % 512 for k in range(40)]


def run(fifo=BypassFifo, *, depth=8, stalls=0.0, start=0, items=ITEMS):
    dut = fifo(9, depth=depth)
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.i, items), bench.sink(dut.o, start=start)
    assert bench.run(read=[dut.level]) == [0]
    assert sink.items == items
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("depth", [2, 5, 8])
def test_items_leave_in_order(depth, stalls):
    run(depth=depth, stalls=stalls)


def test_an_item_passes_in_its_own_cycle_while_the_consumer_is_ready():
    source, sink = run()
    assert sink.times == source.times


def check_gaps(fifo=BypassFifo):
    for start in range(12):
        source, sink = run(fifo, depth=16, start=start, items=ITEMS[:30])
        assert source.times == list(range(source.times[0], source.times[0] + 30))
        assert sink.times == list(range(sink.times[0], sink.times[0] + 30)), start


def test_items_that_came_without_a_gap_leave_without_one_whenever_the_consumer_begins():
    check_gaps()


def check_depth(depth, fifo=BypassFifo):
    source, _ = run(fifo, depth=depth, start=40)
    assert sum(taken < 40 for taken in source.times) == depth + 1


@pytest.mark.parametrize("depth", [2, 5, 8])
def test_the_register_and_depth_items_fill_while_the_output_stalls(depth):
    check_depth(depth)


def check_level(fifo=BypassFifo):
    dut = fifo(8, depth=4)
    bench = Bench(dut)
    bench.source(dut.i, range(4))
    bench.sink(dut.o, start=30)
    levels, waits = bench.record(dut.level), bench.record(dut.waits)
    bench.run()
    assert levels[20] == max(levels) == 4
    assert waits == [level != 0 for level in levels]


def test_level_counts_every_item_that_waits():
    check_level()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("m.d.sync += empty.eq(0)", "m.d.sync += empty.eq(memory.o.valid)"),
        ("empty.eq(memory.level == 1)", "empty.eq(1)"),
        ("self.waits.eq(held | ~empty)", "self.waits.eq(held)"),
        ("Mux(held, oldest, ", "Mux(0, oldest, "),
        ("~(empty & free)", "~(empty & ~held)"),
        ("memory.o.ready.eq(~held & self.o.ready)", "memory.o.ready.eq(self.o.ready)"),
        ("held.eq(empty & self.i.valid)", "held.eq(self.i.valid)"),
        ("memory.level + held", "memory.level"),
        ("self.i.ready.eq(memory.i.ready)", "self.i.ready.eq(1)"),
    ],
)
def test_a_mutant_of_the_fifo_is_noticed(sound, wrong):
    broken = mutant(hw.stream.bypass_fifo, sound, wrong).BypassFifo
    with pytest.raises((AssertionError, TimeoutError)):
        run(broken, stalls=0.5, start=40)
        check_gaps(broken)
        check_depth(4, broken)
        check_level(broken)


@pytest.mark.parametrize("depth", [0, 1])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"BypassFifo depth must be at least 2, not {depth}"):
        BypassFifo(8, depth=depth)

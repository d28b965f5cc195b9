"""The bench itself: what it sends arrives, and what it is there to catch is caught."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet
from hw.stream.skid_buffer import SkidBuffer
from sim.bench.stream import STALLS, Bench, BrokenPromiseError, from_words, pack, to_words, unpack


class Register(wiring.Component):
    """A register stage as it should be: one item, held until it is taken."""

    i: In(stream.Signature(8))
    o: Out(stream.Signature(8))
    stat_taken: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.i.ready.eq(self.may_load()), self.stat_taken.eq(self.i.valid & self.i.ready)]
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        return m

    def may_load(self):
        return ~self.o.valid | self.o.ready


class Overwrites(Register):
    """Broken: takes an item while the one before is still on offer."""

    def may_load(self):
        return ~self.o.valid | self.o.ready | self.i.payload[0]


class Withdraws(Register):
    """Broken: forgets an item that was not taken at once."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(self.o.valid & ~self.i.valid):
            m.d.sync += self.o.valid.eq(0)
        return m


class Turned(wiring.Component):
    """Shows its input as an output, so that the source is watched."""

    i: In(stream.Signature(8))
    o: Out(stream.Signature(8))

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m


def run(dut, items, *, stalls):
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.i, items)
    sink = bench.sink(dut.o)
    bench.run()
    return bench, sink


@pytest.mark.parametrize("stalls", STALLS)
def test_bench_carries_items_and_counts_strobes(stalls):
    bench, sink = run(Register(), range(100), stalls=stalls)
    assert sink.items == list(range(100))
    assert bench.strobes == {"stat_taken": 100}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [Overwrites, Withdraws])
def test_watch_catches_a_broken_register(mutant):
    with pytest.raises(BrokenPromiseError, match="o offered 0x"):
        run(mutant(), range(100), stalls=0.5)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [Overwrites, Withdraws])
def test_only_stalls_show_a_broken_register(mutant):
    assert run(mutant(), range(100), stalls=0)[1].items == list(range(100))


def test_sources_keep_the_promise_too():
    assert run(Turned(), [3, 3, 5] * 30, stalls=0.5)[1].items == [3, 3, 5] * 30


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 1514])
def test_words_are_the_frame(bus_bits, size):
    frame = bytes(k * 7 % 256 for k in range(size))
    words = to_words(frame, bus_bits)
    assert len(words) == -(-size // (bus_bits // 8))
    shape = Packet(bus_bits)
    assert from_words([unpack(shape, pack(shape, word)) for word in words], bus_bits) == [frame]


def test_word_before_the_last_must_be_full():
    shape = Packet(64)
    with pytest.raises(AssertionError, match="count must be 8 before the last word, not 7"):
        from_words([shape.const({"data": 0, "count": 7})], 64)
    with pytest.raises(AssertionError, match="must end"):
        from_words([shape.const({"data": 0, "count": 8})], 64)


def test_bench_gives_up_on_a_component_that_stands_still():
    dut = SkidBuffer(8)
    bench = Bench(dut)
    bench.source(dut.i, range(5))
    with pytest.raises(TimeoutError, match=r"quiet within 100 cycles; sources still hold \[3\] items"):
        bench.run(limit=100)

"""A skid buffer: frames unchanged, one cycle later, one item a cycle, two items held."""

import pytest

import hw.stream.skid_buffer
from hw.stream.packet import Packet
from hw.stream.skid_buffer import SkidBuffer
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_skid_buffer_carries_frames_unchanged(bus_bits, stalls):
    dut = SkidBuffer(Packet(bus_bits))
    bench = Bench(dut, stalls=stalls)
    frames = [bytes(k % 251 for k in range(size)) for size in (60, 61, 63, 64, 65, 127, 128, 129, 300)]
    bench.source(dut.i, [word for frame in frames for word in to_words(frame, bus_bits)])
    sink = bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, bus_bits) == frames


def test_skid_buffer_takes_one_cycle_and_one_item_per_cycle():
    dut = SkidBuffer(8)
    bench = Bench(dut)
    source, sink = bench.source(dut.i, range(50)), bench.sink(dut.o)
    bench.run()
    assert sink.times == [taken + 1 for taken in source.times]
    assert source.times == list(range(source.times[0], source.times[0] + 50))


def test_skid_buffer_holds_two_items_while_the_output_stalls():
    dut = SkidBuffer(8)
    bench = Bench(dut)
    source, sink = bench.source(dut.i, range(5)), bench.sink(dut.o, start=40)
    bench.run()
    assert sum(taken < 40 for taken in source.times) == 2
    assert sink.items == list(range(5))
    assert sink.times == list(range(40, 45))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.i.ready.eq(~spare_valid)", "self.i.ready.eq(1)"),
        ("m.d.sync += spare_valid.eq(0)", "pass"),
        ("payload.eq(spare)", "payload.eq(self.i.payload)"),
        ("self.i.valid | spare_valid", "self.i.valid"),
    ],
)
def test_a_mutant_of_the_skid_buffer_is_noticed(sound, wrong):
    dut = mutant(hw.stream.skid_buffer, sound, wrong).SkidBuffer(8)
    bench = Bench(dut, stalls=0.5)
    bench.source(dut.i, range(50))
    sink = bench.sink(dut.o)
    with pytest.raises((AssertionError, TimeoutError)):
        bench.run()
        assert sink.items == list(range(50))

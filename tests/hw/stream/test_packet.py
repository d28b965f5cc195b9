# amaranth: UnusedElaboratable=no
"""The packet stream's word and its register."""

import pytest
from amaranth.hdl import Shape

from hw.stream.packet import Packet
from hw.stream.skid_buffer import SkidBuffer
from sim.bench.stream import STALLS, Bench, from_words, to_words


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_cut_carries_frames_unchanged(bus_bits, stalls):
    dut = SkidBuffer(Packet(bus_bits))
    bench = Bench(dut, stalls=stalls)
    frames = [bytes(k % 251 for k in range(size)) for size in (60, 61, 63, 64, 65, 127, 128, 129, 300)]
    bench.source(dut.i, [word for frame in frames for word in to_words(frame, bus_bits)])
    sink = bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, bus_bits) == frames


def test_cut_takes_one_cycle_and_one_item_per_cycle():
    dut = SkidBuffer(8)
    bench = Bench(dut)
    source, sink = bench.source(dut.i, range(50)), bench.sink(dut.o)
    bench.run()
    assert sink.times == [taken + 1 for taken in source.times]
    assert source.times == list(range(source.times[0], source.times[0] + 50))


def test_cut_holds_two_items_while_the_output_stalls():
    dut = SkidBuffer(8)
    bench = Bench(dut)
    source, sink = bench.source(dut.i, range(5)), bench.sink(dut.o, start=40)
    bench.run()
    assert sum(taken < 40 for taken in source.times) == 2
    assert sink.items == list(range(5))
    assert sink.times == list(range(40, 45))


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_word_begins_with_byte_0(bus_bits):
    word = Packet(bus_bits)
    assert Shape.cast(word).width == bus_bits + (bus_bits // 8).bit_length() + 2
    assert [word[name].offset for name in ("data", "count")] == [0, bus_bits]


@pytest.mark.parametrize("bus_bits", [0, 32, 128, 1024])
def test_bus_bits_wrong(bus_bits):
    with pytest.raises(ValueError, match=f"Packet bus_bits must be 64, 256 or 512, not {bus_bits}"):
        Packet(bus_bits)

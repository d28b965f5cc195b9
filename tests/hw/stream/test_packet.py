# amaranth: UnusedElaboratable=no
"""The word of a packet stream: its bits, its part without meta, and `first` rebuilt from `last`."""

import pytest
from amaranth.hdl import Module, Shape
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet, first_of, word_of
from sim.bench.stream import STALLS, Bench, to_words


class Marker(wiring.Component):
    """Adds `first` to the words of packets and removes their meta."""

    def __init__(self, *, always_ready: bool):
        super().__init__(
            {
                "i": In(stream.Signature(Packet(64, meta=5), always_ready=always_ready)),
                "o": Out(stream.Signature(Packet(64, first=True), always_ready=always_ready)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        first = first_of(m, self.i)
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            word_of(self.o.payload).eq(word_of(self.i.payload)),
            self.o.payload.first.eq(first),
        ]
        if not self.i.signature.always_ready:
            m.d.comb += self.i.ready.eq(self.o.ready)
        return m


@pytest.mark.parametrize("always_ready", [False, True])
@pytest.mark.parametrize("stalls", STALLS)
def test_first_is_rebuilt_and_words_keep_their_bits(stalls, always_ready):
    dut = Marker(always_ready=always_ready)
    bench = Bench(dut, stalls=stalls)
    frames = [bytes([size]) * size for size in (1, 8, 9, 16, 60, 3, 100)]
    bench.source(dut.i, [word for frame in frames for word in to_words(frame, 64, meta=len(frame) % 32)])
    sink = bench.sink(dut.o)
    bench.run()
    expected = [word for frame in frames for word in to_words(frame, 64, first=True)]
    assert [{name: item[name] for name in expected[0]} for item in sink.items] == expected


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_word_begins_with_byte_0(bus_bits):
    word = Packet(bus_bits)
    assert Shape.cast(word).width == bus_bits + (bus_bits // 8).bit_length() + 2
    assert [word[name].offset for name in ("data", "count")] == [0, bus_bits]


@pytest.mark.parametrize("bus_bits", [0, 32, 128, 1024])
def test_bus_bits_wrong(bus_bits):
    with pytest.raises(ValueError, match=f"Packet bus_bits must be 64, 256 or 512, not {bus_bits}"):
        Packet(bus_bits)

# amaranth: UnusedElaboratable=no
"""The word of the packet stream."""

import pytest
from amaranth.hdl import Shape

from hw.stream.packet import Packet


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_word_begins_with_byte_0(bus_bits):
    word = Packet(bus_bits)
    assert Shape.cast(word).width == bus_bits + (bus_bits // 8).bit_length() + 2
    assert [word[name].offset for name in ("data", "count")] == [0, bus_bits]


@pytest.mark.parametrize("bus_bits", [0, 32, 128, 1024])
def test_bus_bits_wrong(bus_bits):
    with pytest.raises(ValueError, match=f"Packet bus_bits must be 64, 256 or 512, not {bus_bits}"):
        Packet(bus_bits)

"""Words of packets as memories hold them: a bit error is found, and moves no packet's end."""

from amaranth.hdl import Cat, Value
from amaranth.lib import data

from hw.stream.packet import require_bus

__all__ = ["StoredWord", "majority", "parity_of", "stored_word", "triple"]


class StoredWord(data.StructLayout):
    """A word in a memory, as wide as a multiple of a block RAM's 36 bits allows at 64 bits of data.

    If a bit error moved the end of a packet, all later packets would meet the metadata of their neighbours. So `last`
    is stored three times, and the majority counts.

    Members
    -------
    data, count : as in Packet
    last : 3
        Three copies of `last` of the packet's word.
    mark : 1
        `parity` or `error` of the packet's word, whichever the owner of the memory stores.
    """

    def __init__(self, bus_bits: int):
        require_bus("StoredWord", bus_bits)
        super().__init__({"data": bus_bits, "count": range(bus_bits // 8 + 1), "last": 3, "mark": 1})


def triple(bit: Value) -> Value:
    """Return three copies of a bit."""
    return Cat(bit, bit, bit)


def majority(bits: Value) -> Value:
    """Return what at least two of three bits are."""
    return bits[0] & bits[1] | bits[0] & bits[2] | bits[1] & bits[2]


def parity_of(word: data.View) -> Value:
    """Return the even parity of a word's data, `count` and `last`."""
    return Cat(word.data, word.count, word.last).xor()


def stored_word(word: data.View, mark: Value) -> Value:
    """Return a packet's word as a memory holds it."""
    return Cat(word.data, word.count, triple(word.last), mark)

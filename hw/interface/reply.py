"""A reply of the switch, and the words of its frame."""

from amaranth.lib import data

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.stream.packet import LENGTH_BITS, Packet
from iswitch.wire import ACK, HEADER

__all__ = ["Addressed", "Reply"]


class Reply(data.Struct):
    """One reply: our header, with a body if it `acknowledges`, or asks a parent. `receipt`: to a parent, with the
    complement in `members` instead of `behind`."""

    port: 4
    address: Address
    acknowledges: 1
    receipt: 1
    header: layout(HEADER)
    body: layout(ACK)


class Addressed(data.StructLayout):
    """A word of a reply, with where the frame goes; `length` is the frame's. Constant for the frame but for the
    word."""

    def __init__(self, bus_bits: int):
        super().__init__({"word": Packet(bus_bits), "port": 4, "address": Address, "length": LENGTH_BITS})

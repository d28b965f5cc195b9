"""A reply of the switch, and the metadata of its frame."""

from amaranth.lib import data

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.stream.packet import LENGTH_BITS
from iswitch.wire import ACK, HEADER

__all__ = ["Reply", "ReplyRoute"]


class Reply(data.Struct):
    """One reply: its destination, our header and, if it `acknowledges` or is a request to a parent, a body. `receipt`:
    it is a receipt to a parent, whose checksum complement is in `members` instead of `behind`."""

    port: 4
    address: Address
    acknowledges: 1
    receipt: 1
    header: layout(HEADER)
    body: layout(ACK)


class ReplyRoute(data.Struct):
    """The port that sends a reply, the host that receives it, and the frame's length in bytes."""

    port: 4
    address: Address
    length: LENGTH_BITS

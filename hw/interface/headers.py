"""A frame's headers, and what ingress found out about the frame."""

from amaranth.lib import data

from hw.interface.layout import layout
from hw.stream.packet import LENGTH_BITS
from iswitch.wire import CONTROL, FRAME

__all__ = ["Arrival", "CONTROL_LAYOUT", "FRAME_LAYOUT", "Headers", "Scan"]


class Scan(data.Struct):
    """What the ingress queue knows of a complete frame.

    `length` in bytes. `ip_good`, `udp_good`: the checksum is right (or absent, for UDP). `exponent`: the largest biased
    exponent of the payload's elements, as float32. `tainted`, `partial`: from an uplink's tail, valid if the frame
    consists of whole elements.
    """

    length: LENGTH_BITS
    ip_good: 1
    udp_good: 1
    exponent: 8
    tainted: 32
    partial: 1


class Arrival(data.Struct):
    """What goes with each word of a frame after the arbiter: the frame's scan, and the port that received it."""

    scan: Scan
    port: 4


FRAME_LAYOUT = layout(FRAME)


CONTROL_LAYOUT = layout(CONTROL)


class Headers(data.Struct):
    """The first 64 bytes of a frame, and for a control message or an acknowledgement the next 64 (`body`). `ours`: the
    frame is one of our protocol, to this switch."""

    frame: FRAME_LAYOUT
    body: CONTROL_LAYOUT
    arrival: Arrival
    ours: 1

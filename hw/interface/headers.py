"""A frame's headers, and what the switch has found out about the frame before it decides."""

from amaranth.lib import data

from hw.interface.layout import layout
from hw.stream.packet import LENGTH_BITS
from iswitch.wire import CONTROL, FRAME

__all__ = ["Arrival", "CONTROL_LAYOUT", "FRAME_LAYOUT", "Headers", "Scan"]


class Scan(data.Struct):
    """What is known of a frame when it is committed. `exponent`: the largest biased float32 exponent in the payload.
    `tainted`, `partial`: what an uplink's tail says, if it ends with a whole element."""

    length: LENGTH_BITS
    ip_good: 1
    udp_good: 1
    exponent: 8
    tainted: 32
    partial: 1


class Arrival(data.Struct):
    """What stands beside a frame from the arbiter on, constant for the frame."""

    scan: Scan
    port: 4


FRAME_LAYOUT = layout(FRAME)


CONTROL_LAYOUT = layout(CONTROL)


class Headers(data.Struct):
    """The first 64 bytes of a frame, and of a control message or an acknowledgement also the next 64. `ours` decides
    the path it takes."""

    frame: FRAME_LAYOUT
    body: CONTROL_LAYOUT
    arrival: Arrival
    ours: 1

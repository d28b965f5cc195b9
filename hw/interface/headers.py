"""A frame's headers, and properties that ingress measured of the frame."""

from amaranth.hdl import Value
from amaranth.lib import data

from hw.interface.layout import layout
from hw.stream.packet import LENGTH_BITS
from iswitch.wire import (
    CONTRIBUTION_HEADER,
    CONTROL,
    FLAGS_SHIFT,
    FRAME,
    TYPE_BITS,
    ContributionFlag,
    ResultFlag,
    flag_bit,
)

__all__ = [
    "Arrival",
    "CONTROL_LAYOUT",
    "FRAME_LAYOUT",
    "Headers",
    "Scan",
    "contribution_of",
    "format_of",
    "has_flag",
    "type_of",
    "version_of",
]


class Scan(data.Struct):
    """Properties that the ingress queue measured of a complete frame.

    `length` in bytes. `ip_good`, `udp_good`: the checksum is right (or absent, for UDP). `exponent`: the largest biased
    exponent of the payload's elements, as binary32; of binary16 elements, 255 if one is not finite, or below all
    limits. `tainted`, `partial`: from an uplink's tail, valid if the payload consists of complete elements. `ranks`:
    those of an uplink's tail. `identity`: that of a result's tail. `corrupt`: a bit error was found in the scan while
    it waited.
    """

    length: LENGTH_BITS
    ip_good: 1
    udp_good: 1
    exponent: 8
    ranks: 32
    tainted: 32
    partial: 1
    identity: 16
    corrupt: 1


class Arrival(data.Struct):
    """Metadata of each word of a frame after the arbiter: the frame's scan, and the port that received it."""

    scan: Scan
    port: 4


FRAME_LAYOUT = layout(FRAME)


CONTROL_LAYOUT = layout(CONTROL)


class Headers(data.Struct):
    """The first 64 bytes of a frame, and for a control message or an acknowledgement the next 64 (`body`). `ours`: the
    frame is one of our protocol, to this switch. `corrupt`: a bit error was found in these bytes or in the scan, and no
    other field has a meaning; `ours` is 0."""

    frame: FRAME_LAYOUT
    body: CONTROL_LAYOUT
    arrival: Arrival
    ours: 1
    corrupt: 1


def contribution_of(frame: data.View) -> data.View:
    """Return our header of a contribution or an uplink, with the names of its fields."""
    return data.View(layout(CONTRIBUTION_HEADER), frame.as_value()[-8 * CONTRIBUTION_HEADER.itemsize :])


def type_of(frame: data.View) -> Value:
    """Return the type of a frame, a `Type`."""
    return frame.version_type[:TYPE_BITS]


def version_of(frame: data.View) -> Value:
    """Return the version of the protocol that a frame has."""
    return frame.version_type[TYPE_BITS:]


def format_of(frame: data.View) -> Value:
    """Return the number format of a frame's payload, a `Format`."""
    return frame.format_flags[:FLAGS_SHIFT]


def has_flag(frame: data.View, flag: ContributionFlag | ResultFlag) -> Value:
    """Return whether a frame has a flag."""
    return frame.format_flags[flag_bit(flag)]

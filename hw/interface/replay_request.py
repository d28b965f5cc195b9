"""The origin of a request of the replay service."""

from amaranth.lib import data

from hw.stream.packet import LENGTH_BITS

__all__ = ["RequestOrigin"]


class RequestOrigin(data.Struct):
    """The port that received a frame, and the frame's length in bytes."""

    port: 4
    length: LENGTH_BITS

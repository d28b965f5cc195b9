"""Where a request of the replay service came in."""

from amaranth.lib import data

from hw.stream.packet import LENGTH_BITS

__all__ = ["Arrived"]


class Arrived(data.Struct):
    """Where a frame came in, and its length in bytes."""

    port: 4
    length: LENGTH_BITS

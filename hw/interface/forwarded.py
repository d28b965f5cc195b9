"""A word of an ordinary frame with the ports by which the frame leaves."""

from amaranth.lib import data

from hw.stream.packet import LENGTH_BITS, Packet
from iswitch.config import Config

__all__ = ["Flooded"]


class Flooded(data.StructLayout):
    """A word of an ordinary frame, with the set of ports it leaves by and the frame's length."""

    def __init__(self, config: Config):
        super().__init__({"word": Packet(config.bus_bits), "ports": config.ports, "length": LENGTH_BITS})

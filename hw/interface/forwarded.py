"""Metadata of an ordinary frame between the gate and the ports."""

from amaranth.lib import data

from hw.stream.packet import LENGTH_BITS
from iswitch.config import Config

__all__ = ["Forwarding"]


class Forwarding(data.StructLayout):
    """The set of ports that send an ordinary frame, and the frame's length in bytes.

    `own_arp`: the frame is the switch's reply to an ARP request.
    """

    def __init__(self, config: Config):
        super().__init__({"ports": config.ports, "length": LENGTH_BITS, "own_arp": 1})

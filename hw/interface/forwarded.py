"""Metadata of an ordinary frame between the gate and the ports."""

from amaranth.lib import data

from hw.stream.packet import LENGTH_BITS
from iswitch.config import Config

__all__ = ["OWN_ARP_BYTES", "Forwarding"]


OWN_ARP_BYTES = 256
"""Room in a port's queue of ordinary frames that only the switch's ARP replies use: four of them."""


class Forwarding(data.StructLayout):
    """The set of ports that send an ordinary frame, and the bytes that must be free in the queue of each: the frame's
    length, and `OWN_ARP_BYTES` unless it is the switch's reply to an ARP request. The gate adds them, a register before
    the ports decide."""

    def __init__(self, config: Config):
        super().__init__({"ports": config.ports, "room": LENGTH_BITS})

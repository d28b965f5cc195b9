"""Addresses of hosts, members and parents."""

from amaranth.lib import data

from iswitch.config import Config
from iswitch.wire import UDP_PORT

__all__ = ["BINDINGS_BITS", "Address", "Binding", "Parent", "SWITCH_UDP"]

BINDINGS_BITS = 48
"""Bits of a number of bindings: at ten million Joins a second, 2^47 of them take five months."""

SWITCH_UDP = int.from_bytes(UDP_PORT.to_bytes(2, "big"), "little")
"""UDP port of a switch, as a field of `Address`."""


class Address(data.Struct):
    """The destination of a frame to a host. Bytes are in wire order, first byte lowest."""

    mac: 48
    ip: 32
    udp: 16


class Parent(data.Struct):
    """Where the parent of a job is, if the job has one here (`valid`), and the global ranks that join below this
    switch.

    Bytes are in wire order, first byte lowest.
    """

    mac: 48
    ip: 32
    ranks: 32
    port: 8
    valid: 8


class Binding(data.StructLayout):
    """Announces a member's port and address to the output ports when it joins.

    `member` is its index in `job`; index `config.members` is the job's parent.
    """

    def __init__(self, config: Config):
        super().__init__(
            {"job": range(config.jobs), "member": range(config.members + config.uplinks), "port": 4, "address": Address}
        )

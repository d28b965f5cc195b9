"""Addresses of hosts, members and parents."""

from amaranth.lib import data

from iswitch.config import Config
from iswitch.wire import UDP_PORT

__all__ = ["Address", "Binding", "Parent", "SWITCH_UDP"]

SWITCH_UDP = int.from_bytes(UDP_PORT.to_bytes(2, "big"), "little")
"""Of an Address that is a switch's."""


class Address(data.Struct):
    """Where a frame to a host goes; bytes in wire order, first byte lowest."""

    mac: 48
    ip: 32
    udp: 16


class Parent(data.Struct):
    """Where a job's parent is, if it has one here (`valid`), and the global ranks that join below this switch; bytes in
    wire order."""

    mac: 48
    ip: 32
    ranks: 32
    port: 8
    valid: 8


class Binding(data.StructLayout):
    """A member's index in the whole table, with its port and address, told to the ports when it joins. The index after
    the last member's is that of the job's parent."""

    def __init__(self, config: Config):
        super().__init__(
            {"job": range(config.jobs), "member": range(config.members + config.uplinks), "port": 4, "address": Address}
        )

"""Frames that claim to come from the switch itself, and sources that no host has."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bridge.host_requests import ARP, wire
from hw.interface.headers import FRAME_LAYOUT
from iswitch.wire import FRAME

__all__ = ["SpoofDetector"]

TYPE_AT = FRAME.fields["eth_type"][1]
TAG_BYTES, TAGS_MAX = 4, 2
"""Bytes of a VLAN tag, and the tags behind which the switch looks for an address. A host may take off any number of
tags of VLAN 0, so a frame with more of them is taken for a spoof."""
VLAN_TAGS = (wire("8100"), wire("88a8"))
"""EtherTypes of the tags of IEEE 802.1Q: the customer's and the service's."""
IP_SOURCES = ((wire("0800"), FRAME.fields["ip_src"][1]), (wire("0806"), ARP.fields["sender_ip"][1]))
"""EtherTypes of IPv4 and ARP, and where an untagged frame of that type names the IPv4 address of its sender."""
MULTICAST_IP = 0b111
"""The upper bits of the IPv4 addresses from 224.0.0.0 on: multicast, reserved and broadcast."""


class SpoofDetector(wiring.Component):
    """Finds frames whose source is the switch itself, or a group. Combinational.

    `is_own`: the source MAC address is `own_mac`, or the frame is IPv4 or ARP, behind at most two VLAN tags, and its
    IPv4 source is `own_ip`, or the frame has more than two tags. `is_group`: the source MAC address is a group address,
    or the field of an untagged frame's IPv4 source holds an address from 224.0.0.0 on. Golden model:
    `host/iswitch/golden/bridge/spoofing.py`.
    """

    def __init__(self):
        super().__init__(
            {"frame": In(FRAME_LAYOUT), "own_mac": In(48), "own_ip": In(32), "is_own": Out(1), "is_group": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        octets = self.frame.as_value()
        field = lambda at, size: octets[8 * at : 8 * (at + size)]
        found, tagged = [], 1
        for tags in range(TAGS_MAX + 1):
            type = field(TYPE_AT + TAG_BYTES * tags, 2)
            found += [
                tagged & (type == kind) & (field(at + TAG_BYTES * tags, 4) == self.own_ip) for kind, at in IP_SOURCES
            ]
            tagged = tagged & reduce(or_, (type == tag for tag in VLAN_TAGS))
        source = self.frame.eth_src.as_value()
        m.d.comb += [
            self.is_own.eq((source == self.own_mac) | reduce(or_, found) | tagged),
            self.is_group.eq(source[0] | (self.frame.ip_src.as_value()[5:8] == MULTICAST_IP)),
        ]
        return m

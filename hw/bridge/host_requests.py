"""Requests to the switch as a host: ARP (RFC 826) and ICMP echo (RFC 792)."""

import numpy as np
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.headers import Headers
from hw.interface.host_reply import HostReply
from hw.interface.layout import from_big_endian, layout
from iswitch.wire import ADDRESSES, ETHERTYPE_IPV4, IP_PROTOCOL_ICMP, IPV4_FRAGMENT_MASK, IPV4_VERSION_IHL

__all__ = ["ARP", "ECHO", "HostRequests", "wire"]

ARP = np.dtype(
    [
        ("eth_dst", "u1", 6),
        ("eth_src", "u1", 6),
        ("kind", "u1", 8),
        ("operation", "u1", 2),
        ("sender_mac", "u1", 6),
        ("sender_ip", "u1", 4),
        ("target_mac", "u1", 6),
        ("target_ip", "u1", 4),
    ]
)
"""An ARP frame for IPv4 over Ethernet. `kind` is EtherType, hardware type, protocol type and lengths of addresses."""
ECHO = np.dtype(
    [
        *ADDRESSES.descr[: ADDRESSES.names.index("udp_src")],
        ("type", "u1"),
        ("code", "u1"),
        ("checksum", "u1", 2),
        ("identifier", "u1", 2),
        ("sequence", "u1", 2),
    ]
)
"""An ICMP echo in IPv4 without options, up to its data: as long as `ARP`."""
IP_AT, ICMP_AT = ECHO.fields["ip_version_ihl"][1], ECHO.fields["type"][1]


def wire(octets: str) -> int:
    """Return bytes, given in hexadecimal in the order of a frame, as a number with the first byte lowest."""
    return int.from_bytes(bytes.fromhex(octets), "little")


class HostRequests(wiring.Component):
    """Finds requests to the switch as a host, and the reply to each. Combinational; the golden model is
    `host/iswitch/golden/bridge/responder.py`.

    A request is an ARP request for `own_ip`, sent to `own_mac` or to all, or an ICMP echo request to `own_mac` and
    `own_ip`. The latter is complete (no fragment, not truncated), without IPv4 options and with a right IPv4 checksum.
    A requester with a group address gets no reply. The ICMP checksum is not verified: the reply's is wrong if and only
    if the request's was.
    """

    def __init__(self):
        super().__init__({"headers": In(Headers), "own_mac": In(48), "own_ip": In(32), "reply": Out(HostReply)})

    def elaborate(self, platform):
        m = Module()
        scan = self.headers.arrival.scan
        octets = self.headers.frame.as_value()
        arp, echo = (data.View(layout(record), octets[: 8 * record.itemsize]) for record in (ARP, ECHO))
        value = lambda field: field.as_value()
        to_us, to_all = value(arp.eth_dst) == self.own_mac, value(arp.eth_dst) == wire("ff" * 6)
        length = from_big_endian(echo.ip_length)
        is_arp_request, is_echo_request = Signal(), Signal()
        m.d.comb += [
            is_arp_request.eq(
                (to_us | to_all)
                & (value(arp.kind) == wire("0806 0001 0800 06 04"))
                & (value(arp.operation) == wire("0001"))
                & (value(arp.target_ip) == self.own_ip)
                & ~value(arp.sender_mac)[0]
            ),
            is_echo_request.eq(
                to_us
                & (from_big_endian(echo.eth_type) == ETHERTYPE_IPV4)
                & (echo.ip_version_ihl == IPV4_VERSION_IHL)
                & ((from_big_endian(echo.ip_fragment) & IPV4_FRAGMENT_MASK) == 0)
                & (echo.ip_protocol == IP_PROTOCOL_ICMP)
                & scan.ip_good
                & (length >= ECHO.itemsize - IP_AT)
                & (length <= scan.length - IP_AT)
                & (value(echo.ip_dst) == self.own_ip)
                & (echo.type == 8)
                & (echo.code == 0)
                & ~value(echo.eth_src)[0]
            ),
        ]
        # The type changes from 8 to 0 (RFC 1624). Of the two zeros of ones' complement this gives 0xFFFF, which is
        # right for a message of zeros only, too.
        total = Signal(17)
        m.d.comb += [
            total.eq(value(echo.checksum) + wire("0800")),
            self.reply.valid.eq(is_arp_request | is_echo_request),
            self.reply.is_arp.eq(is_arp_request),
            self.reply.mac.eq(Mux(is_arp_request, value(arp.sender_mac), value(echo.eth_src))),
            self.reply.ip.eq(Mux(is_arp_request, value(arp.sender_ip), value(echo.ip_src))),
            self.reply.checksum.eq((total[:16] + total[16])[:16]),
        ]
        return m

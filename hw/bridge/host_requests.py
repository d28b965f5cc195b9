"""What is asked of the switch as a host: who has its address (RFC 826), and is it there (RFC 792)."""

import numpy as np
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.headers import Headers
from hw.interface.layout import from_big_endian, layout
from hw.interface.verdict import Answer
from iswitch.wire import ADDRESSES, ETHERTYPE_IPV4, IP_PROTOCOL_ICMP, IPV4_FRAGMENT_MASK, IPV4_VERSION_IHL

__all__ = ["ARP", "ECHO", "Requests", "wire"]

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
"""ARP for IPv4 over Ethernet, which is what `kind` says: EtherType, hardware, protocol, lengths of addresses."""
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
"""ICMP echo in IPv4 without options. As long as ARP."""
IP_AT, ICMP_AT = ECHO.fields["ip_version_ihl"][1], ECHO.fields["type"][1]


def wire(octets: str) -> int:
    """Bytes as they follow each other in a frame, the first lowest."""
    return int.from_bytes(bytes.fromhex(octets), "little")


class Requests(wiring.Component):
    """Whether a frame asks something of the switch, and the answer. Combinational; the truth is
    `sim/model/bridge/responder.py`.

    An ARP request for `own_ip`, to `own_mac` or to all; or an ICMP echo request to `own_mac` and `own_ip`, whole (not a
    fragment, not cut short) and without options, with a right IPv4 checksum. Nobody is answered at a group address.
    Whether the ICMP checksum is right is left to the asker: the answer's is wrong if and only if the request's was.
    """

    def __init__(self):
        super().__init__({"headers": In(Headers), "own_mac": In(48), "own_ip": In(32), "answer": Out(Answer)})

    def elaborate(self, platform):
        m = Module()
        scan = self.headers.arrival.scan
        octets = self.headers.frame.as_value()
        arp, echo = (data.View(layout(record), octets[: 8 * record.itemsize]) for record in (ARP, ECHO))
        value = lambda field: field.as_value()
        to_us, to_all = value(arp.eth_dst) == self.own_mac, value(arp.eth_dst) == wire("ff" * 6)
        length = from_big_endian(echo.ip_length)
        asks_arp, asks_echo = Signal(), Signal()
        m.d.comb += [
            asks_arp.eq(
                (to_us | to_all)
                & (value(arp.kind) == wire("0806 0001 0800 06 04"))
                & (value(arp.operation) == wire("0001"))
                & (value(arp.target_ip) == self.own_ip)
                & ~value(arp.sender_mac)[0]
            ),
            asks_echo.eq(
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
        # RFC 1624 for a type that goes from 8 to 0. Of the two zeros that ones' complement has this gives 0xFFFF, which
        # is right for a message of nothing but zeros too.
        total = Signal(17)
        m.d.comb += [
            total.eq(value(echo.checksum) + wire("0800")),
            self.answer.answers.eq(asks_arp | asks_echo),
            self.answer.arp.eq(asks_arp),
            self.answer.mac.eq(Mux(asks_arp, value(arp.sender_mac), value(echo.eth_src))),
            self.answer.ip.eq(Mux(asks_arp, value(arp.sender_ip), value(echo.ip_src))),
            self.answer.checksum.eq((total[:16] + total[16])[:16]),
        ]
        return m

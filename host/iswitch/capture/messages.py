"""The messages of iswitch in captured packets."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Any, NamedTuple

import numpy as np

from iswitch.capture.layout import HEADERS
from iswitch.capture.pcap import Packet
from iswitch.wire import ETHERTYPE_IPV4, HEADER, IP_PROTOCOL_UDP, IPV4_FRAGMENT_MASK, TYPE_BITS, UDP_PORT, VERSION, Type

__all__ = ["SOFTWARE_PORTS", "Message", "messages"]

SOFTWARE_PORTS = range(27000, 27064)
"""UDP ports of the software switch and of the emulated board, unless their options name others."""
_ETHERNET, _RAW, _COOKED, _COOKED_2 = 1, 101, 113, 276
_ETHERTYPE_AT = {_ETHERNET: (12, 14), _COOKED: (14, 16), _COOKED_2: (0, 20)}
"""By link type: where the EtherType is, and where the packet behind it begins."""


class Message(NamedTuple):
    """A message, as one capture has seen it.

    Attributes
    ----------
    time_ns : int
        When it was captured, in nanoseconds since 1970.
    source, target : str
        "IP:port".
    type : Type
        Its type.
    header : numpy.void
        Its header, with the names of `HEADERS`.
    payload : bytes
        What follows the header, as far as it was captured.
    """

    time_ns: int
    source: str
    target: str
    type: Type
    header: Any
    payload: bytes


def messages(packets: Iterable[Packet], ports: Iterable[int] = ()) -> Iterator[Message]:
    """Yield the messages of iswitch in packets.

    Parameters
    ----------
    packets : iterable of Packet
        The packets.
    ports : iterable of int
        UDP ports of the switch, beside `UDP_PORT` and `SOFTWARE_PORTS`.
    """
    known = {UDP_PORT, *SOFTWARE_PORTS, *ports}
    types = {int(type) for type in Type}
    for packet in packets:
        ip = _ipv4(packet)
        if len(ip) < 20 or ip[0] >> 4 != 4 or ip[9] != IP_PROTOCOL_UDP:
            continue
        udp = ip[4 * (ip[0] & 15) :]
        if int.from_bytes(ip[6:8]) & IPV4_FRAGMENT_MASK or len(udp) < 8 + HEADER.itemsize:
            continue
        source, target = int.from_bytes(udp[:2]), int.from_bytes(udp[2:4])
        payload = udp[8 : int.from_bytes(udp[4:6])]
        type, version = payload[0] % (1 << TYPE_BITS) if payload else -1, payload[0] >> TYPE_BITS if payload else -1
        if not known & {source, target} or version != VERSION or type not in types or len(payload) < HEADER.itemsize:
            continue
        header = np.frombuffer(payload, HEADERS[Type(type)], 1)[0]
        yield Message(
            packet.time_ns,
            f"{IPv4Address(ip[12:16])}:{source}",
            f"{IPv4Address(ip[16:20])}:{target}",
            Type(type),
            header,
            payload[HEADER.itemsize :],
        )


def _ipv4(packet: Packet) -> bytes:
    """Return the IPv4 packet in a captured packet; nothing if there is none."""
    if packet.link_type == _RAW:
        return packet.octets
    if packet.link_type not in _ETHERTYPE_AT:
        return b""
    at, behind = _ETHERTYPE_AT[packet.link_type]
    is_ipv4 = packet.octets[at : at + 2] == ETHERTYPE_IPV4.to_bytes(2)
    return packet.octets[behind:] if is_ipv4 else b""

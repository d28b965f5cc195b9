"""A network card without a network: puts Ethernet, IPv4 and UDP around payloads, and takes them off."""

import socket
import struct
from typing import NamedTuple

from iswitch.switch.sockets import station_mac
from iswitch.wire import (
    ADDRESSES,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IP_TTL,
    IPV4_DONT_FRAGMENT,
    IPV4_VERSION_IHL,
    UDP_PORT,
)

__all__ = ["FRAME_BYTES_LEAST", "Card", "Client"]

FRAME_BYTES_LEAST = 60
"""Ethernet's minimum, without FCS (IEEE 802.3, 3.2.8)."""
ADDRESS_BYTES = ADDRESSES.itemsize
_IPV4 = ETHERTYPE_IPV4.to_bytes(2) + bytes([IPV4_VERSION_IHL])


class Client(NamedTuple):
    """A UDP socket that talks to the switch. Its MAC address is made from its socket address, so that no two clients
    share one."""

    ip: bytes
    udp_port: int

    @property
    def mac(self) -> bytes:
        return station_mac(self.ip, self.udp_port)

    @property
    def address(self) -> tuple[str, int]:
        return socket.inet_ntoa(self.ip), self.udp_port


class Card:
    """The network card of all clients of a port: puts Ethernet, IPv4 and UDP around payloads and takes them off."""

    def __init__(self, switch_mac: bytes, switch_ip: bytes):
        self.switch_mac, self.switch_ip = switch_mac, switch_ip
        self._clients: dict[bytes, tuple[str, int]] = {}
        self._heads: dict[tuple[Client, int], tuple[bytes, int]] = {}

    def wrap(self, payload: bytes, client: Client) -> bytes:
        """Return the frame that the client's card would send, padded to Ethernet's minimum, with valid checksums."""
        length = len(payload)
        known = self._heads.get((client, length))
        if known is None:
            known = self._heads[client, length] = self._head(client, length)
        head, partial = known
        # 2^16 is 1 modulo 65535, so the remainder of the whole number is the ones' complement sum of its words.
        total = (partial + (int.from_bytes(payload) << 8 * (length & 1))) % 0xFFFF
        return (head + (0xFFFF - total).to_bytes(2) + payload).ljust(FRAME_BYTES_LEAST, b"\0")

    def _head(self, client: Client, length: int) -> tuple[bytes, int]:
        """Return the headers in front of the UDP checksum, and the part of that checksum that does not depend on the
        payload."""
        if len(self._heads) > 1 << 16:
            self._heads.clear()
        self._clients[client.mac + client.ip + struct.pack(">H", client.udp_port)] = client.address
        head = IPV4_VERSION_IHL, 0, 28 + length, 0, IPV4_DONT_FRAGMENT, IP_TTL, IP_PROTOCOL_UDP, 0
        ip = struct.pack(">BBHHHBBH4s4s", *head, client.ip, self.switch_ip)
        ip = ip[:10] + (0xFFFF - int.from_bytes(ip) % 0xFFFF).to_bytes(2) + ip[12:]
        udp = struct.pack(">HHH", client.udp_port, UDP_PORT, 8 + length)
        pseudo = client.ip + self.switch_ip + struct.pack(">HH", IP_PROTOCOL_UDP, 8 + length)
        ethernet = self.switch_mac + client.mac + ETHERTYPE_IPV4.to_bytes(2)
        return ethernet + ip + udp, int.from_bytes(pseudo + udp) % 0xFFFF

    def unwrap(self, frame: bytes) -> tuple[tuple[str, int], bytes] | str:
        """Return the client and the payload of a frame, or the reason why no client gets it."""
        if len(frame) < ADDRESS_BYTES or frame[12:15] != _IPV4 or frame[23] != IP_PROTOCOL_UDP:
            return "not UDP over IPv4"
        address = self._clients.get(frame[:6] + frame[30:34] + frame[36:38])
        if address is None:
            return "not for a client of this port"
        length = int.from_bytes(frame[38:40])
        end = 34 + length
        if int.from_bytes(frame[16:18]) != 20 + length or length < 8 or end > len(frame):
            return "bad length"
        if int.from_bytes(frame[14:34]) % 0xFFFF:
            return "bad IPv4 checksum"
        covered = int.from_bytes(frame[26:end]) << 8 * (length & 1)
        if frame[40:42] != b"\0\0" and (covered + 17 + length) % 0xFFFF:
            return "bad UDP checksum"
        return address, frame[ADDRESS_BYTES:end]

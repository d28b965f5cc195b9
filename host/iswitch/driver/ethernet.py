"""Whole Ethernet frames with a UDP datagram over IPv4: their headers are written and checked here, without a kernel.

A *burst frame* carries datagrams of equal size behind one set of headers, longer than the MTU: the kernel cuts it at
the device (UDP GSO), or has put it together. The kernel describes it by a virtio network header
(linux/include/uapi/linux/virtio_net.h) in front of the frame.
"""

import socket
import struct
from dataclasses import dataclass
from enum import Enum

import numpy as np

from iswitch.driver.transport import Buffer

__all__ = [
    "BURST_HEADER_BYTES",
    "HEADER_BYTES",
    "IP_UDP_BYTES",
    "BurstHeader",
    "Endpoints",
    "Fault",
    "frame_headers",
    "internet_checksum",
    "payload_of",
]

_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_PSEUDO = struct.Struct("!4s4sHH")
_BURST = struct.Struct("=BBHHHH")
_IP_AT, _UDP_AT = _ETHERNET.size, _ETHERNET.size + _IPV4.size
HEADER_BYTES = _UDP_AT + _UDP.size
"""Bytes of a frame in front of the datagram's payload."""
IP_UDP_BYTES = _IPV4.size + _UDP.size
"""Those of them that count for the MTU."""
BURST_HEADER_BYTES = _BURST.size
"""Bytes of the virtio header in front of a frame."""
_ETHERTYPE_IPV4, _VERSION_LENGTH, _TTL, _DO_NOT_FRAGMENT = 0x0800, 0x45, 64, 0x4000
_FRAGMENT = 0x3FFF  # more fragments follow, or an offset
_NEEDS_CHECKSUM, _CHECKSUM_AT = 1, 6
_GSO_NONE, _GSO_UDP = 0, 5


class Fault(Enum):
    """Why a frame was ignored."""

    OTHER = "of other hosts or ports"
    LENGTH = "of a wrong length"
    FRAGMENT = "fragments"
    OPTIONS = "with IPv4 options, or of another version"
    IP_CHECKSUM = "with a wrong IPv4 header checksum"
    UDP_CHECKSUM = "with a wrong UDP checksum"
    BURST = "of several datagrams whose size is unknown"


@dataclass(frozen=True)
class Endpoints:
    """Addresses of this machine and of the switch.

    Parameters
    ----------
    ip, peer_ip : bytes
        IPv4 addresses, 4 bytes.
    udp_port, peer_udp_port : int
        UDP ports.
    """

    ip: bytes
    udp_port: int
    peer_ip: bytes
    peer_udp_port: int


@dataclass(frozen=True)
class BurstHeader:
    """What the kernel says of a frame: the bytes of each datagram in it, or 0 if it carries one alone.

    Raises ValueError if it is another kind of long frame.
    """

    segment_bytes: int

    @classmethod
    def parse(cls, header: Buffer) -> "BurstHeader":
        """Read a virtio header."""
        _, gso_type, _, gso_bytes, _, _ = _BURST.unpack(header)
        if gso_type not in (_GSO_NONE, _GSO_UDP) or (gso_type == _GSO_UDP and not gso_bytes):
            raise ValueError(f"a frame of GSO type {gso_type} holds no UDP datagrams of equal size")
        return cls(gso_bytes if gso_type else 0)

    def build(self) -> bytes:
        """Return the virtio header of a frame whose UDP checksum the kernel or the device computes."""
        gso_type = _GSO_UDP if self.segment_bytes else _GSO_NONE
        return _BURST.pack(_NEEDS_CHECKSUM, gso_type, HEADER_BYTES, self.segment_bytes, _UDP_AT, _CHECKSUM_AT)


def internet_checksum(data: Buffer, start: int = 0) -> int:
    """Return the sum of RFC 1071, not inverted: 16-bit words, big-endian, with end-around carry.

    Parameters
    ----------
    data : bytes, bytearray or memoryview
        What is summed; a last odd byte counts as the upper half of a word.
    start : int
        A sum that is continued.
    """
    octets = np.frombuffer(data, np.uint8)
    even = octets[: len(octets) & ~1].view(">u2")
    total = start + int(even.sum(dtype=np.uint64)) + (int(octets[-1]) << 8 if len(octets) & 1 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame_headers(
    endpoints: Endpoints, macs: tuple[bytes, bytes], payload: Buffer, *, partial_checksum: bool = False
) -> bytes:
    """Return the headers of a frame from this machine to the switch.

    Parameters
    ----------
    endpoints : Endpoints
        The addresses.
    macs : tuple of bytes
        MAC addresses of the next hop and of this machine's interface.
    payload : bytes, bytearray or memoryview
        What follows the headers.
    partial_checksum : bool
        If True, the UDP checksum covers the pseudo header alone, and the kernel or the device completes it.
    """
    udp_bytes = _UDP.size + len(payload)
    fields = [_VERSION_LENGTH, 0, _IPV4.size + udp_bytes, 0, _DO_NOT_FRAGMENT, _TTL, socket.IPPROTO_UDP]
    addresses = (endpoints.ip, endpoints.peer_ip)
    ip_checksum = 0xFFFF ^ internet_checksum(_IPV4.pack(*fields, 0, *addresses))
    ports = (endpoints.udp_port, endpoints.peer_udp_port, udp_bytes)
    total = internet_checksum(_PSEUDO.pack(*addresses, socket.IPPROTO_UDP, udp_bytes))
    if not partial_checksum:
        total = internet_checksum(payload, internet_checksum(_UDP.pack(*ports, 0), total))
        total = 0xFFFF ^ total or 0xFFFF  # 0 would mean: no checksum
    return (
        _ETHERNET.pack(*macs, _ETHERTYPE_IPV4) + _IPV4.pack(*fields, ip_checksum, *addresses) + _UDP.pack(*ports, total)
    )


def payload_of(frame: memoryview, endpoints: Endpoints, *, checked: bool) -> memoryview | Fault:
    """Return the UDP payload of a frame from the switch to this machine, or why the frame is ignored.

    Parameters
    ----------
    frame : memoryview
        The frame without its FCS. Padding may follow the datagram.
    endpoints : Endpoints
        The addresses.
    checked : bool
        True if the kernel or the device answers for the UDP checksum.
    """
    if len(frame) < HEADER_BYTES:
        return Fault.LENGTH
    _, _, ethertype = _ETHERNET.unpack_from(frame)
    version, _, ip_bytes, _, fragment, _, protocol, _, source, destination = _IPV4.unpack_from(frame, _IP_AT)
    if ethertype != _ETHERTYPE_IPV4 or (protocol, source, destination) != (
        socket.IPPROTO_UDP,
        endpoints.peer_ip,
        endpoints.ip,
    ):
        return Fault.OTHER
    if version != _VERSION_LENGTH:
        return Fault.OPTIONS
    if internet_checksum(frame[_IP_AT:_UDP_AT]) != 0xFFFF:
        return Fault.IP_CHECKSUM
    if fragment & _FRAGMENT:
        return Fault.FRAGMENT
    source_port, port, udp_bytes, checksum = _UDP.unpack_from(frame, _UDP_AT)
    if (source_port, port) != (endpoints.peer_udp_port, endpoints.udp_port):
        return Fault.OTHER
    if udp_bytes < _UDP.size or ip_bytes != _IPV4.size + udp_bytes or _UDP_AT + udp_bytes > len(frame):
        return Fault.LENGTH
    if checksum and not checked:
        pseudo = internet_checksum(_PSEUDO.pack(source, destination, socket.IPPROTO_UDP, udp_bytes))
        if internet_checksum(frame[_UDP_AT : _UDP_AT + udp_bytes], pseudo) != 0xFFFF:
            return Fault.UDP_CHECKSUM
    return frame[HEADER_BYTES : _UDP_AT + udp_bytes]

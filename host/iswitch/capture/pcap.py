"""Reads captures: classic pcap, and the blocks of pcapng that tcpdump and Wireshark write."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["CaptureError", "Packet", "read_capture"]

_CLASSIC = {
    b"\xa1\xb2\xc3\xd4": (">", 10**6),
    b"\xd4\xc3\xb2\xa1": ("<", 10**6),
    b"\xa1\xb2\x3c\x4d": (">", 10**9),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9),
}
"""Byte order, and units of time in a second, by the first bytes of a file."""
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_RESOLUTION = 9


class CaptureError(ValueError):
    """A file is not a capture that this program can read."""


class Packet(NamedTuple):
    """A captured packet.

    Attributes
    ----------
    time_ns : int
        When it was captured, in nanoseconds since 1970.
    link_type : int
        Link type as tcpdump.org lists them; 1 is Ethernet.
    octets : bytes
        The captured bytes; perhaps not all of the packet.
    """

    time_ns: int
    link_type: int
    octets: bytes


def read_capture(path: Path) -> Iterator[Packet]:
    """Yield the packets of a capture. An incomplete packet at the end, as of a capture that still runs, is left out.

    Raises
    ------
    CaptureError
        If the file is neither pcap nor pcapng.
    OSError
        If the file cannot be read.
    """
    data = path.read_bytes()
    if data[:4] in _CLASSIC and len(data) >= 24:
        yield from _classic(data)
    elif data[:4] == _SECTION.to_bytes(4, "big"):
        yield from _blocks(data, path)
    else:
        raise CaptureError(f"{path} is neither pcap nor pcapng: give a file that tcpdump -w or Wireshark has written")


def _classic(data: bytes) -> Iterator[Packet]:
    order, units = _CLASSIC[data[:4]]
    link_type = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF  # the other bits say how long an FCS is
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, captured, _ = struct.unpack_from(order + "4I", data, at)
        at += 16
        if at + captured > len(data):
            return
        yield Packet(seconds * 10**9 + fraction * (10**9 // units), link_type, data[at : at + captured])
        at += captured


def _blocks(data: bytes, path: Path) -> Iterator[Packet]:
    order, at = "<", 0
    interfaces: list[tuple[int, int]] = []  # link type, units of time in a second
    while at + 12 <= len(data):
        if data[at : at + 4] == _SECTION.to_bytes(4, "big"):
            order = "<" if struct.unpack_from("<I", data, at + 8)[0] == _BYTE_ORDER_MAGIC else ">"
            interfaces = []
        kind, length = struct.unpack_from(order + "2I", data, at)
        if length < 12 or length % 4:
            raise CaptureError(f"{path} has a block of {length} bytes at {at}, so it is damaged: capture again")
        if at + length > len(data):
            return
        body = data[at + 8 : at + length - 4]
        if kind == _INTERFACE and len(body) >= 8:
            interfaces.append((struct.unpack_from(order + "H", body)[0], _resolution(body[8:], order)))
        elif kind == _PACKET and len(body) >= 20:
            interface, high, low, captured, _ = struct.unpack_from(order + "5I", body)
            if interface >= len(interfaces):
                raise CaptureError(f"{path} has a packet of an interface that it does not describe: capture again")
            link_type, units = interfaces[interface]
            yield Packet((high << 32 | low) * 10**9 // units, link_type, body[20 : 20 + captured])
        at += length


def _resolution(options: bytes, order: str) -> int:
    """Return the units of time in a second: 10^6, unless an option says otherwise."""
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "2H", options, at)
        if code == _RESOLUTION and length == 1 and at + 4 < len(options):
            exponent = options[at + 4]
            return int(2 ** (exponent & 0x7F) if exponent & 0x80 else 10**exponent)
        if code == 0:
            break
        at += 4 + -(-length // 4) * 4
    return 10**6

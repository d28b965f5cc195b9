"""What the switch answers as a host: who has its address, and is it there. Frames in, frames out."""

import struct

from iswitch.wire import IPV4_FRAGMENT_MASK, ones_complement_sum
from sim.model.interface.message import SwitchAddress

__all__ = ["answer"]

BROADCAST = b"\xff" * 6
ARP_HEAD = bytes.fromhex("0806 0001 0800 06 04")
"""EtherType, Ethernet, IPv4 and the lengths of their addresses (RFC 826)."""
REQUEST, REPLY = b"\0\1", b"\0\2"
ECHO_REQUEST, ECHO_REPLY = b"\x08\0", b"\0\0"
"""Type and code (RFC 792)."""
IP_AT, ICMP_AT = 14, 34


def answer(frame: bytes, own: SwitchAddress) -> bytes | None:
    """The frame that answers `frame`, to leave by the port it came from; None if nothing is asked of the switch here.

    Nobody is answered at a group address. What follows the message, padding included, stays as it came.
    """
    return arp(frame, own) or echo(frame, own)


def arp(frame: bytes, own: SwitchAddress) -> bytes | None:
    sender, asked = frame[22:32], frame[38:42]
    if (
        frame[:6] not in (BROADCAST, own.mac)
        or frame[12:20] != ARP_HEAD
        or frame[20:22] != REQUEST
        or asked != own.ip
        or sender[0] & 1
    ):
        return None
    return sender[:6] + own.mac + ARP_HEAD + REPLY + own.mac + own.ip + sender + frame[42:]


def echo(frame: bytes, own: SwitchAddress) -> bytes | None:
    """`checksum + 0x0800` with the end-around carry is RFC 1624's update for a type that goes from 8 to 0. Of the two
    zeros that ones' complement has it gives 0xFFFF, which is right for a message of nothing but zeros too."""
    length, _, fragment, _, protocol = struct.unpack_from(">HHHBB", frame, 16)
    if (
        frame[:6] != own.mac
        or frame[6] & 1
        or frame[12:15] != b"\x08\0\x45"
        or fragment & IPV4_FRAGMENT_MASK
        or protocol != 1
        or not 28 <= length <= len(frame) - IP_AT
        or ones_complement_sum(frame[IP_AT:ICMP_AT]) != 0xFFFF
        or frame[30:34] != own.ip
        or frame[ICMP_AT : ICMP_AT + 2] != ECHO_REQUEST
    ):
        return None
    checksum = int.from_bytes(frame[36:38], "big") + 0x0800
    checksum = checksum % 0x10000 + checksum // 0x10000
    return (
        frame[6:12]
        + own.mac
        + frame[12:26]
        + own.ip
        + frame[26:30]
        + ECHO_REPLY
        + struct.pack(">H", checksum)
        + frame[38:]
    )

"""The switch as a host: it answers ARP requests for its address and ICMP echo requests. Frames in, frames out."""

import struct

from iswitch.golden.interface.message import SwitchAddress
from iswitch.wire import IPV4_FRAGMENT_MASK, ones_complement_sum

__all__ = ["answer"]

BROADCAST = b"\xff" * 6
ARP_HEAD = bytes.fromhex("0806 0001 0800 06 04")
"""EtherType, Ethernet, IPv4 and the lengths of their addresses (RFC 826)."""
REQUEST, REPLY = b"\0\1", b"\0\2"
ECHO_REQUEST, ECHO_REPLY = b"\x08\0", b"\0\0"
"""Type and code (RFC 792)."""
IP_AT, ICMP_AT = 14, 34


def answer(frame: bytes, own: SwitchAddress) -> bytes | None:
    """Return the answer to a frame, which leaves by the port that the frame came in by; None if it is no request.

    A requester with a group address gets no answer. Whatever follows the message, padding included, is copied.
    """
    return arp(frame, own) or echo(frame, own)


def arp(frame: bytes, own: SwitchAddress) -> bytes | None:
    """Return the ARP reply to a request for the switch's address, or None."""
    sender, requested = frame[22:32], frame[38:42]
    if (
        frame[:6] not in (BROADCAST, own.mac)
        or frame[12:20] != ARP_HEAD
        or frame[20:22] != REQUEST
        or requested != own.ip
        or sender[0] & 1
    ):
        return None
    return sender[:6] + own.mac + ARP_HEAD + REPLY + own.mac + own.ip + sender + frame[42:]


def echo(frame: bytes, own: SwitchAddress) -> bytes | None:
    """Return the reply to an ICMP echo request, or None.

    The type goes from 8 to 0, so the checksum rises by 0x0800 with an end-around carry (RFC 1624). Of the two zeros of
    ones' complement that gives 0xFFFF, which is right for a message of zeros only, too.
    """
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

"""Frames on the wire: addresses, our 22-byte header, the numbers in it, and what stands behind a payload.

The 22-byte header makes Ethernet + IPv4 + UDP + header exactly 64 bytes, so that a payload starts on a bus word at
64, 256 and 512 bits. Ethernet, IPv4 and UDP fields are big-endian, ours little-endian.
"""

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np

__all__ = [
    "ADDRESSES",
    "BROADCAST_MEMBER",
    "CONTRIBUTION_HEADER",
    "ContributionFlag",
    "ETHERTYPE_ARP",
    "ETHERTYPE_IPV4",
    "FLAGS_SHIFT",
    "TYPE_BITS",
    "FRAME",
    "FRAME_BYTES",
    "Format",
    "HEADER",
    "IPV4_DONT_FRAGMENT",
    "IPV4_FRAGMENT_MASK",
    "IPV4_VERSION_IHL",
    "IP_PROTOCOL_ICMP",
    "IP_PROTOCOL_UDP",
    "IP_TTL",
    "RESULT_FRAME",
    "RESULT_HEADER",
    "ResultFlag",
    "TAIL",
    "TAIL_BYTES",
    "Type",
    "UDP_PORT",
    "UPLINK_TAIL",
    "VERSION",
    "flag_bit",
    "longest_frame_bytes",
    "ones_complement_sum",
    "uplink_elements",
    "version_type",
]

VERSION = 2
"""Version of the protocol, in the high nibble of the header's first byte."""
UDP_PORT = 0x6953
"""Destination port of everything sent to the switch, source port of everything it sends ("iS")."""

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_ARP = 0x0806
IPV4_VERSION_IHL = 0x45
"""IPv4 with a header of five 32-bit words, that is, without options."""
IPV4_DONT_FRAGMENT = 0x4000
IPV4_FRAGMENT_MASK = 0x3FFF
"""The bits of `ip_fragment` that are not 0 in a fragment: more fragments, and the offset."""
IP_TTL = 64
"""Time to live of the frames that the switch sends."""
IP_PROTOCOL_ICMP = 1
IP_PROTOCOL_UDP = 17

BROADCAST_MEMBER = 255
"""`member` of a result that goes to all members."""


class Type(IntEnum):
    """Kind of a frame, the low nibble of the header's first byte."""

    CONTRIBUTION = 0
    RESULT = 1
    UPLINK = 2
    RECEIPT = 3
    NOTICE = 4
    CONTROL = 5
    ACK = 6
    CLAIM = 7
    GRANT = 8
    REFUSE = 9
    REQUEST = 10
    ANSWER = 11
    DATA = 12


class Format(IntEnum):
    """Number format of a payload, the low nibble of `format_flags`."""

    WINDOW64 = 1
    FP32 = 2
    INT32 = 3
    FIXED64 = 4
    BF16 = 5
    FP16 = 6


class ContributionFlag(IntFlag):
    """High nibble of `format_flags` in a contribution or a receipt.

    WANT is a flag of receipts: the sender lacks the result. REQUIRES_ALL is a flag of contributions: the segment waits
    for all members.
    """

    RETRANSMISSION = 1
    BOUNDARY = 2
    REQUIRES_ALL = 8
    WANT = 8


class ResultFlag(IntFlag):
    """High nibble of `format_flags` in a result."""

    PARTIAL = 1
    RESENT = 2
    TAINTED = 4
    MEMBERS_CHANGED = 8


TYPE_BITS = 4
"""Bits of `version_type` that hold the type, below the version."""
FLAGS_SHIFT = 4
"""The flags in `format_flags` begin at this bit, above the format."""


def version_type(type: Any) -> Any:
    """Return the header's first byte: `VERSION` in the high nibble, the type in the low one.

    Parameters
    ----------
    type : Type or int or amaranth.hdl.Value
        The kind of the frame; the gateware passes a value of at most four bits.

    Returns
    -------
    int or amaranth.hdl.Value
        The byte; a Value for a Value.
    """
    return VERSION << TYPE_BITS | type


def flag_bit(flag: ContributionFlag | ResultFlag) -> int:
    """Return the number of the bit of `format_flags` that holds a flag."""
    return FLAGS_SHIFT + int(flag).bit_length() - 1


# Offsets in the comments count from the first byte after the UDP header.
_HEADER_FIELDS = [
    ("version_type", "<u1"),  # 0   version_type(Type)
    ("job", "<u1"),  # 1
    ("epoch", "<u2"),  # 2   incarnation of the job
    ("seq", "<u4"),  # 4   number of the segment, modulo 2^32; claim, refusal: the member's number of its vector
    ("member", "<u1"),  # 8
    ("format_flags", "<u1"),  # 9   flags << FLAGS_SHIFT | Format
    ("count", "<u2"),  # 10  notice: Reason; grant: members granted
    # 12  seq minus the lowest seq whose result the sender lacks; ack, notice, grant, refusal: checksum complement
    ("behind", "<u2"),
    # 14  grant: members; claim: seq of its weights; refusal: first seq of the next update; notice: another collective
    ("members", "<u4"),
    ("token", "<u4"),  # 18  of the member; in a grant, of the job
]
HEADER = np.dtype(_HEADER_FIELDS)
"""Our header, behind the UDP header."""

_RESULT_FIELDS = [
    *_HEADER_FIELDS[:6],
    ("tainted", "<u4"),  # 10  ranks whose contribution was tainted
    ("members", "<u4"),  # 14  ranks in the sum
    ("token", "<u4"),  # 18  of the job
]
RESULT_HEADER = np.dtype(_RESULT_FIELDS)
"""The header of a RESULT: `tainted` stands in the place of `count` and `behind`."""

_CONTRIBUTION_NAMES = {"count": "digest", "members": "collective"}
CONTRIBUTION_HEADER = np.dtype([(_CONTRIBUTION_NAMES.get(name, name), field) for name, field in _HEADER_FIELDS])
"""The header of a CONTRIBUTION or an UPLINK. `collective`: the 32 bits of a `Collective`. `digest`: of all results that
the worker has applied."""

ADDRESSES = np.dtype(
    [
        ("eth_dst", "u1", 6),
        ("eth_src", "u1", 6),
        ("eth_type", ">u2"),
        ("ip_version_ihl", "u1"),
        ("ip_tos", "u1"),
        ("ip_length", ">u2"),
        ("ip_id", ">u2"),
        ("ip_fragment", ">u2"),
        ("ip_ttl", "u1"),
        ("ip_protocol", "u1"),
        ("ip_checksum", ">u2"),
        ("ip_src", ">u4"),
        ("ip_dst", ">u4"),
        ("udp_src", ">u2"),
        ("udp_dst", ">u2"),
        ("udp_length", ">u2"),
        ("udp_checksum", ">u2"),
    ]
)
"""Ethernet, IPv4 without options, UDP: 42 bytes."""

FRAME = np.dtype(ADDRESSES.descr + _HEADER_FIELDS)
"""The first 64 bytes of each of our frames."""
FRAME_BYTES = FRAME.itemsize

RESULT_FRAME = np.dtype(ADDRESSES.descr + _RESULT_FIELDS)
"""The first 64 bytes of a RESULT."""

TAIL = np.dtype([("identity", "<u2"), ("complement", ">u2")])
"""Behind a result's payload. `identity`: the `result_identity` of the contributions. `complement` makes the ones'
complement sum of header, payload and tail zero (RFC 7820)."""
TAIL_BYTES = TAIL.itemsize

UPLINK_TAIL = np.dtype([("ranks", "<u4"), ("tainted", "<u4"), ("flags", "<u2"), ("complement", ">u2")])
"""Behind an uplink's payload. `ranks`, `tainted`: sets of ranks in the sum, and of those whose elements were rejected.
`flags`: `ResultFlag.PARTIAL` if the sum lacks a member below this switch for which the slot waited."""


def longest_frame_bytes(elements: int) -> int:
    """Return the longest frame that a switch accepts, in bytes without the FCS.

    Parameters
    ----------
    elements : int
        The most 4-byte elements in a segment of that switch.

    Returns
    -------
    int
        The size of its longest result, but at least that of an MTU of 1,500 bytes with a VLAN tag.
    """
    return max(1518, FRAME_BYTES + 4 * elements + TAIL_BYTES)


def uplink_elements(elements: int) -> int:
    """Return the most elements in a segment of a job in a tree: an uplink carries 8 bytes for each.

    Parameters
    ----------
    elements : int
        The most 4-byte elements in a segment of each switch of the tree.
    """
    return min(elements, (longest_frame_bytes(elements) - FRAME_BYTES - UPLINK_TAIL.itemsize) // 8)


for _record, _size in (
    (HEADER, 22),
    (CONTRIBUTION_HEADER, 22),
    (RESULT_HEADER, 22),
    (FRAME, 64),
    (RESULT_FRAME, 64),
    (TAIL, 4),
    (UPLINK_TAIL, 12),
):
    if _record.itemsize != _size:
        raise ImportError(f"wire record {_record.names} is {_record.itemsize} bytes, but the protocol says {_size}")


def ones_complement_sum(data: bytes) -> int:
    """Return the ones' complement sum of big-endian 16-bit words (RFC 1071).

    Parameters
    ----------
    data : bytes
        The octets to add. If their number is odd, a zero is appended.

    Returns
    -------
    int
        The sum, 0 to 0xFFFF.
    """
    padded = bytes(data) + b"\0" * (len(data) & 1)
    total = int(np.frombuffer(padded, ">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total

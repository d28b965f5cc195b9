"""Classify frames as ordinary, malformed or messages. Sections 1 to 3 of `docs/protocol.md`, up to `TYPE`."""

import struct

import numpy as np

from iswitch.golden.interface.message import Message, Request, Settings, Source
from iswitch.wire import (
    ACK,
    CONTROL,
    ETHERTYPE_IPV4,
    FRAME,
    FRAME_BYTES,
    HEADER,
    IP_PROTOCOL_UDP,
    IPV4_FRAGMENT_MASK,
    IPV4_VERSION_IHL,
    UDP_PORT,
    VERSION,
    Outcome,
    Type,
    ones_complement_sum,
)

__all__ = ["ADDRESS_BYTES", "FLAT", "is_ours", "parse", "parse_control", "parse_payload"]

ADDRESS_BYTES = FRAME_BYTES - HEADER.itemsize
IP_AT, UDP_AT = 14, 34
FLAT = (Type.CONTRIBUTION, Type.RECEIPT, Type.CONTROL, Type.CLAIM)
"""The messages that workers send."""
BODY_BYTES = {Type.CONTROL: CONTROL.itemsize, Type.ACK: ACK.itemsize, Type.NOTICE: 0}
"""Bytes after the header, for types of one length."""


def is_ours(frame: bytes, ip: bytes) -> bool:
    """Return whether a frame belongs to iswitch: UDP over IPv4 to the switch's address and iswitch's port.

    The frame has at least 60 bytes, so all of these fields exist. The flag DF does not make a frame a fragment.
    """
    eth_type, version_ihl, _, _, _, fragment = struct.unpack_from(">HBBHHH", frame, 12)
    protocol, destination, udp_dst = frame[23], frame[30:34], int.from_bytes(frame[36:38], "big")
    return (
        eth_type == ETHERTYPE_IPV4
        and version_ihl == IPV4_VERSION_IHL
        and not fragment & IPV4_FRAGMENT_MASK
        and protocol == IP_PROTOCOL_UDP
        and destination == ip
        and udp_dst == UDP_PORT
    )


def parse(port: int, frame: bytes, ip: bytes, types: tuple[Type, ...] = FLAT) -> Message | Outcome:
    """Return the message in a frame, or the outcome of a frame that holds none.

    Parameters
    ----------
    port : int
        The port by which the frame came in.
    frame : bytes
        At least 60 bytes, without FCS.
    ip : bytes
        The switch's own address.
    types : tuple of Type
        The messages that the switch handles.
    """
    if not is_ours(frame, ip):
        return Outcome.ORDINARY
    if frame[ADDRESS_BYTES] >> 4 != VERSION:
        return Outcome.VERSION
    ip_length, udp_length = int.from_bytes(frame[16:18], "big"), int.from_bytes(frame[38:40], "big")
    if not len(frame) == IP_AT + ip_length == UDP_AT + udp_length or len(frame) < FRAME_BYTES:
        return Outcome.LENGTH
    if ones_complement_sum(frame[IP_AT:UDP_AT]) != 0xFFFF:
        return Outcome.IP_CHECKSUM
    header = np.frombuffer(frame, FRAME, 1)[0]
    pseudo = frame[26:34] + struct.pack(">HH", 17, udp_length)
    if header["udp_checksum"] != 0 and ones_complement_sum(pseudo + frame[UDP_AT:]) != 0xFFFF:
        return Outcome.UDP_CHECKSUM
    source = Source(port, header["eth_src"].tobytes(), int(header["ip_src"]), int(header["udp_src"]))
    return parse_payload(source, frame[ADDRESS_BYTES:], types)


def parse_payload(source: Source, payload: bytes, types: tuple[Type, ...] = FLAT) -> Message | Outcome:
    """Return the message in a UDP payload, or the outcome of one that holds none.

    A network stack that removes addresses and checksums begins here.
    """
    if not payload:
        return Outcome.LENGTH
    if payload[0] >> 4 != VERSION:
        return Outcome.VERSION
    if len(payload) < HEADER.itemsize:
        return Outcome.LENGTH
    header = np.frombuffer(payload, HEADER, 1)[0]
    kind = int(header["version_type"]) & 0xF
    if kind not in types:
        return Outcome.TYPE
    body = payload[HEADER.itemsize :]
    if len(body) != BODY_BYTES.get(Type(kind), len(body)):
        return Outcome.LENGTH
    return Message(
        Type(kind),
        source,
        int(header["job"]),
        int(header["epoch"]),
        int(header["seq"]),
        int(header["member"]),
        int(header["format_flags"]) >> 4,
        int(header["format_flags"]) & 0xF,
        int(header["behind"]),
        int(header["token"]),
        body,
        int(header["count"]),
        int(header["members"]),
    )


def parse_control(message: Message) -> Request:
    """Return the control message in a message of that type."""
    body = np.frombuffer(message.payload, CONTROL, 1)[0]
    settings = Settings(*(int(body[name]) for name in Settings._fields))
    return Request(
        int(body["action"]),
        message.epoch,
        message.member,
        message.token,
        message.seq,
        int(body["key"]),
        int(body["nonce"]),
        settings,
        int(body["segment"]),
        int(body["address"]),
        job_token=int(body["job_token"]),
        challenge=int(body["challenge"]),
        operator_key=int(body["operator_key"]),
    )

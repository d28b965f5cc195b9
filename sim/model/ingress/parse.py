"""What a frame is: not ours, ours but malformed, or a message. Sections 1 to 3 of `docs/protocol.md`, up to `TYPE`."""

import struct
from typing import NamedTuple

import numpy as np

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
from sim.model.decide.membership import Request, Settings, Source

__all__ = ["ADDRESS_BYTES", "FLAT", "Message", "is_ours", "parse", "request"]

ADDRESS_BYTES = FRAME_BYTES - HEADER.itemsize
IP_AT, UDP_AT = 14, 34
FLAT = (Type.CONTRIBUTION, Type.RECEIPT, Type.CONTROL, Type.CLAIM)
"""What workers send."""
BODY_BYTES = {Type.CONTROL: CONTROL.itemsize, Type.ACK: ACK.itemsize, Type.NOTICE: 0}


class Message(NamedTuple):
    """A frame of ours with right lengths and checksums and a type that the switch obeys. `payload`: behind the header.
    `reason`: the header's `count`, which is that in a notice. Of a REQUEST only type and source mean anything: its
    header is another."""

    type: Type
    source: Source
    job: int
    epoch: int
    seq: int
    member: int
    flags: int
    format: int
    behind: int
    token: int
    payload: bytes
    reason: int = 0
    members: int = 0


def is_ours(frame: bytes, ip: bytes) -> bool:
    """Only ports see shorter frames than 60 bytes, so all of these fields are there. DF does not make a fragment."""
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
    """The message, or the outcome of a frame that is none. `types`: what the switch obeys."""
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
    kind = int(header["version_type"]) & 0xF
    if kind not in types:
        return Outcome.TYPE
    payload = frame[FRAME_BYTES:]
    if len(payload) != BODY_BYTES.get(Type(kind), len(payload)):
        return Outcome.LENGTH
    source = Source(port, header["eth_src"].tobytes(), int(header["ip_src"]), int(header["udp_src"]))
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
        payload,
        int(header["count"]),
        int(header["members"]),
    )


def request(message: Message) -> Request:
    """The control message in a message of that type."""
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
    )

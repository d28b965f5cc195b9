"""The frames that the switch sends: the UDP payload of each type, and the Ethernet, IPv4 and UDP headers around it.

The UDP payload sums to zero in ones' complement. So the UDP checksum depends on addresses, ports and length alone; it
is computed here without looking at the payload, as the gateware does.
"""

import struct

import numpy as np

from iswitch.golden.interface.message import Source, SwitchAddress
from iswitch.wire import (
    ACK,
    ADDRESSES,
    BROADCAST_MEMBER,
    CONTROL,
    ETHERTYPE_IPV4,
    FLAGS_SHIFT,
    HEADER,
    IP_PROTOCOL_UDP,
    IP_TTL,
    IPV4_DONT_FRAGMENT,
    IPV4_VERSION_IHL,
    RESULT_HEADER,
    TAIL,
    UDP_PORT,
    UPLINK_TAIL,
    ContributionFlag,
    Reason,
    ResultFlag,
    Type,
    ones_complement_sum,
    version_type,
)

__all__ = ["ack", "control", "frame", "grant", "notice", "receipt", "refuse", "result", "uplink", "with_complement"]

COMPLEMENT_AT = HEADER.fields["behind"][1]
RECEIPT_COMPLEMENT_AT = HEADER.fields["members"][1]
"""Offsets of the complement, which takes the place of a field that the message does not use."""


def header(type: Type, **fields: int) -> bytes:
    """Return a header with these fields; the others are 0."""
    record = np.zeros(1, HEADER)
    record["version_type"] = version_type(type)
    for name, value in fields.items():
        record[name] = value
    return record.tobytes()


def with_complement(payload: bytes, at: int) -> bytes:
    """Return the payload with the 16 bits at `at`, which are 0, set so that it sums to zero. They are big-endian."""
    complement = 0xFFFF - ones_complement_sum(payload)
    return payload[:at] + struct.pack(">H", complement) + payload[at + 2 :]


def result(
    *,
    job: int,
    epoch: int,
    seq: int,
    format: int,
    flags: int,
    members: int,
    tainted: int,
    token: int,
    elements: np.ndarray,
    identity: int = 0,
) -> bytes:
    """Return the UDP payload of a RESULT, which is the same for every receiver. `token` is the job's; `elements` are
    uint32 or uint16."""
    head = np.zeros(1, RESULT_HEADER)
    head["version_type"] = version_type(Type.RESULT)
    head["job"], head["epoch"], head["seq"], head["member"] = job, epoch, seq, BROADCAST_MEMBER
    head["format_flags"] = flags << FLAGS_SHIFT | format
    head["tainted"], head["members"], head["token"] = tainted, members, token
    tail = np.zeros(1, TAIL)
    tail["identity"] = identity
    payload = head.tobytes() + elements.astype(elements.dtype.newbyteorder("<")).tobytes() + tail.tobytes()
    return with_complement(payload, len(payload) - TAIL.itemsize + TAIL.fields["complement"][1])


def notice(*, job: int, epoch: int, seq: int, member: int, token: int, reason: Reason, collective: int = 0) -> bytes:
    """Return the UDP payload of a NOTICE. `collective`: with which the receiver's differs."""
    return with_complement(
        header(
            Type.NOTICE, job=job, epoch=epoch, seq=seq, member=member, token=token, count=reason, members=collective
        ),
        COMPLEMENT_AT,
    )


def grant(*, job: int, epoch: int, base: int, members: int, token: int) -> bytes:
    """Return the UDP payload of a GRANT, which is the same for every receiver. `token` is the job's."""
    return with_complement(
        header(
            Type.GRANT,
            job=job,
            epoch=epoch,
            seq=base,
            member=BROADCAST_MEMBER,
            count=members.bit_count(),
            members=members,
            token=token,
        ),
        COMPLEMENT_AT,
    )


def refuse(*, job: int, epoch: int, k: int, member: int, token: int, base: int) -> bytes:
    """Return the UDP payload of a REFUSE of claim `k`. `base` is that of the next update."""
    return with_complement(
        header(Type.REFUSE, job=job, epoch=epoch, seq=k, member=member, token=token, members=base), COMPLEMENT_AT
    )


def ack(
    *, job: int, epoch: int, seq: int, member: int, token: int, registers: tuple[int, ...] = (0,) * 8, **body: int
) -> bytes:
    """Return the UDP payload of an acknowledgement. `body` names fields of `ACK`; the others are 0."""
    record = np.zeros(1, ACK)
    record["registers"] = registers
    for name, value in body.items():
        record[name] = value
    head = header(Type.ACK, job=job, epoch=epoch, seq=seq, member=member, token=token)
    return with_complement(head + record.tobytes(), COMPLEMENT_AT)


def uplink(
    *,
    job: int,
    epoch: int,
    seq: int,
    member: int,
    token: int,
    format: int,
    flags: int,
    behind: int,
    ranks: int,
    tainted: int,
    partial: bool,
    elements: np.ndarray,
    collective: int = 0,
    digest: int = 0,
) -> bytes:
    """Return the UDP payload of an UPLINK. `elements` are int64 or uint32."""
    head = header(
        Type.UPLINK,
        job=job,
        epoch=epoch,
        seq=seq,
        member=member,
        token=token,
        behind=behind,
        members=collective,
        format_flags=flags << FLAGS_SHIFT | format,
        count=digest,
    )
    tail = np.zeros(1, UPLINK_TAIL)
    tail["flags"], tail["ranks"], tail["tainted"] = ResultFlag.PARTIAL if partial else 0, ranks, tainted
    payload = head + elements.astype(elements.dtype.newbyteorder("<")).tobytes()
    return with_complement(payload + tail.tobytes(), len(payload) + UPLINK_TAIL.fields["complement"][1])


def receipt(*, job: int, epoch: int, seq: int, member: int, token: int, behind: int, want: bool) -> bytes:
    """Return the UDP payload of a switch's RECEIPT. Its complement stands in `members`, because the frame uses
    `behind`."""
    return with_complement(
        header(
            Type.RECEIPT,
            job=job,
            epoch=epoch,
            seq=seq,
            member=member,
            token=token,
            behind=behind,
            format_flags=(ContributionFlag.WANT if want else 0) << FLAGS_SHIFT,
        ),
        RECEIPT_COMPLEMENT_AT,
    )


def control(*, job: int, seq: int, member: int, token: int, ranks: int, epoch: int = 0, **body: int) -> bytes:
    """Return the UDP payload of a switch's CONTROL. `body` names fields of `CONTROL`; the others are 0."""
    record = np.zeros(1, CONTROL)
    for name, value in body.items():
        record[name] = value
    return with_complement(
        header(Type.CONTROL, job=job, epoch=epoch, seq=seq, member=member, token=token, members=ranks)
        + record.tobytes(),
        COMPLEMENT_AT,
    )


def frame(own: SwitchAddress, to: Source, payload: bytes) -> bytes:
    """Return the frame around a UDP payload that sums to zero."""
    record = np.zeros(1, ADDRESSES)
    udp_length = 8 + len(payload)
    fields = {
        "eth_dst": np.frombuffer(to.mac, "u1"),
        "eth_src": np.frombuffer(own.mac, "u1"),
        "eth_type": ETHERTYPE_IPV4,
        "ip_version_ihl": IPV4_VERSION_IHL,
        "ip_length": 20 + udp_length,
        "ip_fragment": IPV4_DONT_FRAGMENT,
        "ip_ttl": IP_TTL,
        "ip_protocol": IP_PROTOCOL_UDP,
        "ip_src": int.from_bytes(own.ip, "big"),
        "ip_dst": to.ip,
        "udp_src": UDP_PORT,
        "udp_dst": to.udp_port,
        "udp_length": udp_length,
    }
    for name, value in fields.items():
        record[name] = value
    blank = record.tobytes()
    record["ip_checksum"] = 0xFFFF - ones_complement_sum(blank[14:34])
    pseudo = blank[26:34] + struct.pack(">HH", IP_PROTOCOL_UDP, udp_length)
    record["udp_checksum"] = 0xFFFF - ones_complement_sum(pseudo + blank[34:42]) or 0xFFFF
    return record.tobytes() + payload

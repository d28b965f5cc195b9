"""Frames around many payloads at once, as `sim.frames.client.udp_frame` makes each of them."""

import numpy as np

from iswitch.wire import (
    ADDRESSES,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IP_TTL,
    IPV4_DONT_FRAGMENT,
    IPV4_VERSION_IHL,
    UDP_PORT,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC
from sim.fuzz.steps import Sent

__all__ = ["frames_of"]

IPV4_BYTES, UDP_BYTES, SHORTEST_BYTES = 20, 8, 60
IP_AT, UDP_AT = 14, 34
ADDRESSES_AT = 26
"""Of the IPv4 addresses, which the UDP checksum covers."""


def checksums(words: np.ndarray) -> np.ndarray:
    """Return the Internet checksum of each row of bytes; uint32."""
    total: np.ndarray = words.view(">u2").sum(axis=-1, dtype=np.uint32)
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def frames_of(sent: Sent) -> list[bytes]:
    """Return the frames of payloads to the switch, with correct checksums, without FCS.

    Parameters
    ----------
    sent : Sent
        Payloads, shape (payloads, bytes), all of which arrive.
    """
    lengths = sent.arrivals["length"]
    count, room = sent.payloads.shape
    frames = np.zeros((count, ADDRESSES.itemsize + room + room % 2), np.uint8)
    frames[:, ADDRESSES.itemsize : ADDRESSES.itemsize + room] = sent.payloads * (np.arange(room) < lengths[:, None])
    record, source = frames[:, : ADDRESSES.itemsize].view(ADDRESSES)[:, 0], sent.arrivals["source"]
    record["eth_dst"], record["eth_src"] = np.frombuffer(SWITCH_MAC, np.uint8), source["mac"]
    record["eth_type"], record["ip_version_ihl"] = ETHERTYPE_IPV4, IPV4_VERSION_IHL
    record["ip_fragment"], record["ip_ttl"], record["ip_protocol"] = IPV4_DONT_FRAGMENT, IP_TTL, IP_PROTOCOL_UDP
    record["ip_src"], record["ip_dst"] = source["ip"], int.from_bytes(SWITCH_IP, "big")
    record["udp_src"], record["udp_dst"] = source["udp_port"], UDP_PORT
    record["udp_length"] = UDP_BYTES + lengths
    record["ip_length"] = IPV4_BYTES + UDP_BYTES + lengths
    record["ip_checksum"] = checksums(frames[:, IP_AT:UDP_AT])
    pseudo = np.zeros((count, 4), np.uint8)
    pseudo[:, 1] = IP_PROTOCOL_UDP
    pseudo[:, 2:] = record["udp_length"].copy().view(np.uint8).reshape(count, 2)
    covered = checksums(np.concatenate([pseudo, frames[:, ADDRESSES_AT:]], axis=1))
    record["udp_checksum"] = np.where(covered, covered, 0xFFFF)
    ends = np.maximum(ADDRESSES.itemsize + lengths, SHORTEST_BYTES)
    return [frame[:end].tobytes() for frame, end in zip(frames, ends, strict=True)]

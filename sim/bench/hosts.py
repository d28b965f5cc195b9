"""Ordinary stations: their frames to each other, and their ARP and ping requests to the switch."""

import struct

import numpy as np

from iswitch.config import Config
from iswitch.wire import ones_complement_sum
from sim.frames.client import SWITCH_IP, SWITCH_MAC, ordinary

__all__ = ["BROADCAST", "Host", "Hosts", "arp_request", "crowd", "echo_request", "spoilt", "spoofed"]

BROADCAST = b"\xff" * 6
FRAME_BYTES_MOST = 1514


class Host:
    """A station behind `port`."""

    def __init__(self, mac: bytes, ip: bytes, port: int) -> None:
        self.mac, self.ip, self.port = mac, ip, port


def crowd(entries: int, count: int) -> list[bytes]:
    """Return `count` addresses, at most 16, that a table of `entries` keeps in one set: they differ in bits that cancel
    out in the hash."""
    bits = (entries // 4).bit_length() - 1
    return [(0x020000000099 ^ k << 8 ^ k << 8 + bits).to_bytes(6, "big") for k in range(count)]


def arp_request(host: Host, asked: bytes, *, to: bytes = BROADCAST, padding: int = 18) -> bytes:
    return (
        to
        + host.mac
        + bytes.fromhex("0806 0001 0800 06 04 0001")
        + host.mac
        + host.ip
        + bytes(6)
        + asked
        + bytes(k % 251 for k in range(padding))
    )


def echo_request(
    host: Host, payload: bytes, *, to: bytes = SWITCH_MAC, ip: bytes = SWITCH_IP, padding: int = 0
) -> bytes:
    """Return a ping with correct checksums, padded to 60 bytes and by `padding` more."""
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0x1234, 0x4000, 63, 1, 0, host.ip, ip)
    message = struct.pack(">BBHHH", 8, 0, 0, 0x5678, len(payload)) + payload
    message = message[:2] + struct.pack(">H", 0xFFFF - ones_complement_sum(message)) + message[4:]
    return summed(to + host.mac + b"\x08\0" + head + message).ljust(60, b"\0") + bytes(padding)


def summed(frame: bytes) -> bytes:
    """Return the frame with a correct IPv4 checksum."""
    head = frame[14:24] + b"\0\0" + frame[26:34]
    return frame[:24] + struct.pack(">H", 0xFFFF - ones_complement_sum(head)) + frame[26:]


def spoilt(frame: bytes, at: int, bit: int = 0, *, again: bool = True) -> bytes:
    """Return the frame with one bit changed; with `again` the IPv4 checksum is correct again, so that another check
    must find the error."""
    changed = frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :]
    return summed(changed) if again and frame[12:14] == b"\x08\0" else changed


def spoofed(host: Host, *, tags: tuple[str, ...] = (), arp: bool = False, ip: bytes = SWITCH_IP) -> bytes:
    """Return a broadcast that names `ip` as its IPv4 source, behind VLAN tags with these EtherTypes."""
    plain = arp_request(Host(host.mac, ip, host.port), host.ip)
    if not arp:
        plain = echo_request(Host(host.mac, ip, host.port), bytes(18), to=BROADCAST, ip=host.ip)
    return plain[:12] + b"".join(bytes.fromhex(tag) + bytes(2) for tag in tags) + plain[12:]


class Hosts:
    """Stations at the ports of a switch, some of them in one set of its table, which cannot hold them all.

    `frame` gives the next port and frame. The stations send frames to each other, to broadcast, to groups and to
    unknown addresses, requests to the switch, near misses of requests, claim to be the switch, and they move.
    """

    def __init__(self, config: Config, rng: np.random.Generator) -> None:
        self.ports, self.rng = config.ports, rng
        macs = [*crowd(config.mac_entries, 6), *(bytes([2, 0, 0, 0, 1, k]) for k in range(6))]
        self.hosts = [Host(mac, bytes([10, 0, 2, k]), k % config.ports) for k, mac in enumerate(macs)]

    def frame(self, most: int = FRAME_BYTES_MOST) -> tuple[int, bytes]:
        """Return a frame of 60 to `most` bytes."""
        rng = self.rng
        host, other = (self.hosts[k] for k in rng.integers(len(self.hosts), size=2))
        if rng.random() < 0.1:
            host.port = int(rng.integers(self.ports))
        size = int(rng.choice([60, most, rng.integers(60, most + 1)]))
        kind = rng.random()
        if kind < 0.02:
            tags = ["8100", "88a8", "8100", "9100"][: rng.integers(4)]
            frame = spoofed(host, tags=(*tags,), arp=bool(rng.random() < 0.5), ip=[SWITCH_IP, host.ip][rng.integers(2)])
        elif kind < 0.6:
            frame = ordinary(other.mac, host.mac, size)
        elif kind < 0.85:
            frame = self.asked(host, other, size)
        else:
            group = bytes.fromhex("0180c20000") + bytes([int(rng.integers(20))])
            to = [
                BROADCAST,
                group,
                spoilt(group, int(rng.integers(6)), int(rng.integers(8))),
                bytes.fromhex("01005e000001"),
                rng.bytes(6),
                SWITCH_MAC,
            ][rng.integers(6)]
            source = [host.mac, host.mac, host.mac, bytes(6), BROADCAST, SWITCH_MAC][rng.integers(6)]
            frame = ordinary(to, source, size)
        return host.port, frame

    def asked(self, host: Host, other: Host, size: int) -> bytes:
        """Return a request that the switch answers, or one a bit away from it."""
        rng = self.rng
        if rng.random() < 0.5:
            frame = arp_request(
                host,
                SWITCH_IP if rng.random() < 0.8 else other.ip,
                padding=size - 42,
                to=[BROADCAST, BROADCAST, SWITCH_MAC, other.mac][rng.integers(4)],
            )
        else:
            padding = int(rng.integers(0, 9)) if size > 80 else 0
            frame = echo_request(host, rng.bytes(size - 42 - padding), padding=padding)
        if rng.random() < 0.4:
            frame = spoilt(frame, int(rng.integers(42)), int(rng.integers(8)), again=bool(rng.random() < 0.7))
        return frame

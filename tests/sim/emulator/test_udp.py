"""Ports as UDP sockets: bursts of datagrams, both ways."""

import socket

import pytest

from sim.emulator.card import Card, Client
from sim.emulator.udp import UdpSocket
from sim.frames.client import SWITCH_IP, SWITCH_MAC


def back(frame: bytes) -> bytes:
    """What the switch would send to the frame's sender."""
    return (
        frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36] + frame[38:]
    )


@pytest.mark.parametrize("sizes", [[100] * 200, [0, 0, 5, 5, 3, 5, 9, 9], [1400] * 50 + [7], [9000] * 20, [1, 0, 1]])
def test_bursts_arrive_as_they_were(sizes: list[int]) -> None:
    payloads = [bytes([number & 0xFF]) * size for number, size in enumerate(sizes)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(2)
        card = Card(SWITCH_MAC, SWITCH_IP)
        client = Client(socket.inet_aton("127.0.0.1"), sink.getsockname()[1])
        port = UdpSocket(("127.0.0.1", 0), card)
        port.deliver_frames([back(card.wrap(payload, client)) for payload in payloads])
        assert [sink.recv(65536) for _ in payloads] == payloads
        assert port.counts == {"datagrams out": len(payloads)}
        # And the other way: what a client sends as one burst is taken apart again.
        sink.sendmsg(
            [b"".join([b"t" * 500] * 9), b"end"],
            [(socket.IPPROTO_UDP, 103, (500).to_bytes(2, "little"))],
            0,
            port.address,
        )
        parts = [b"t" * 500] * 9 + [b"end"]
        assert (
            port.receive_frames(100) == [card.wrap(part, client) for part in parts] and port.receive_frames(100) == []
        )
        port.close()

"""The frames a network card would send, against scapy."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from iswitch.wire import UDP_PORT
from sim.emulator.card import Card, Client
from sim.frames.client import SWITCH_IP, SWITCH_MAC

CLIENT = Client(bytes([127, 0, 0, 1]), 40123)


def recomputed(frame: bytes) -> bytes:
    """The frame with checksums as scapy computes them, without padding."""
    packet = Ether(frame)
    del packet[IP].chksum, packet[UDP].chksum
    packet[UDP].remove_payload()
    return bytes(packet / frame[42 : 34 + packet[UDP].len])


def back(frame: bytes) -> bytes:
    """What the switch would send to the frame's sender, by scapy."""
    packet = Ether(frame)
    reply = (
        Ether(src=packet.dst, dst=packet.src)
        / IP(src=packet[IP].dst, dst=packet[IP].src)
        / UDP(sport=packet[UDP].dport, dport=packet[UDP].sport)
    )
    return bytes(reply / frame[42 : 34 + packet[UDP].len])


@pytest.mark.parametrize("payload", [b"", b"a", b"ab", bytes(17), bytes(18), b"\xff" * 86, bytes(range(255)) * 5])
def test_card_builds_what_scapy_builds(payload: bytes) -> None:
    frame = Card(SWITCH_MAC, SWITCH_IP).wrap(payload, CLIENT)
    assert len(frame) == max(60, 42 + len(payload)) and not any(frame[42 + len(payload) :])
    assert frame[: 42 + len(payload)] == recomputed(frame)
    packet = Ether(frame)
    assert (packet.dst, packet.src) == (SWITCH_MAC.hex(":"), CLIENT.mac.hex(":"))
    assert (packet[IP].src, packet[IP].dst) == ("127.0.0.1", "10.0.0.1")
    assert (packet[UDP].sport, packet[UDP].dport) == (40123, UDP_PORT)


def test_a_checksum_that_comes_to_zero_is_sent_as_ones() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    checksum = card.wrap(b"\0\0", CLIENT)[40:42]
    assert card.wrap(checksum, CLIENT)[40:42] == b"\xff\xff"


def test_card_takes_off_what_the_switch_puts_on() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    for payload in (b"", b"a", b"odd", bytes(range(256))):
        assert card.unwrap(back(card.wrap(payload, CLIENT))) == (CLIENT.address, payload)


def test_a_card_ignores_what_is_wrong_or_not_its_own() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    good = back(card.wrap(b"payload", CLIENT))
    patched = lambda at, value: good[:at] + bytes([value]) + good[at + 1 :]
    assert card.unwrap(patched(12, 0x86)) == card.unwrap(patched(23, 6)) == card.unwrap(b"") == "not UDP over IPv4"
    assert card.unwrap(patched(5, good[5] ^ 1)) == "not for a client of this port"
    assert card.unwrap(patched(39, 99)) == card.unwrap(good[:44]) == "bad length"
    assert card.unwrap(patched(22, 1)) == "bad IPv4 checksum"
    assert card.unwrap(patched(44, good[44] ^ 4)) == "bad UDP checksum"
    assert card.unwrap(good[:40] + b"\0\0" + good[42:]) == (CLIENT.address, b"payload")


def test_clients_have_macs_of_their_own() -> None:
    clients = [Client(bytes([127, 0, 0, host]), number) for host in (1, 2) for number in (1, 256, 40000)]
    assert len({client.mac for client in clients}) == 6 and all(client.mac[0] == 2 for client in clients)

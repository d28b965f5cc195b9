"""The switch as a host: scapy builds the requests, parses the answers and recomputes their checksums."""

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from iswitch.golden.bridge.responder import answer
from iswitch.golden.interface.message import SwitchAddress
from sim.frames.client import SWITCH_IP, SWITCH_MAC

OWN = SwitchAddress(SWITCH_MAC, SWITCH_IP)
MAC, ADDRESS = "02:57:49:00:00:01", "10.0.0.1"
ASKER, ASKER_IP = "02:00:00:00:01:42", "10.0.2.7"


def padded(packet) -> bytes:
    return bytes(packet).ljust(60, b"\0")


@pytest.mark.parametrize("to", ["ff:ff:ff:ff:ff:ff", MAC])
@pytest.mark.parametrize("sender_ip", [ASKER_IP, "0.0.0.0"])
def test_an_arp_request_is_answered_to_its_sender(to, sender_ip):
    """From 0.0.0.0 it is a probe (RFC 5227), which must be answered too."""
    request = Ether(src=ASKER, dst=to) / ARP(op="who-has", hwsrc=ASKER, psrc=sender_ip, pdst=ADDRESS)
    reply = answer(padded(request), OWN)
    assert reply == padded(
        Ether(src=MAC, dst=ASKER) / ARP(op="is-at", hwsrc=MAC, psrc=ADDRESS, hwdst=ASKER, pdst=sender_ip)
    )
    assert Ether(reply)[ARP].answers(request[ARP])


@pytest.mark.parametrize("padding", [0, 1, 100, 1472])
def test_what_follows_a_request_follows_the_answer(padding):
    request = bytes(Ether(src=ASKER, dst=MAC) / ARP(hwsrc=ASKER, psrc=ASKER_IP, pdst=ADDRESS)) + bytes(
        k & 255 for k in range(18 + padding)
    )
    assert answer(request, OWN)[42:] == request[42:]


@pytest.mark.parametrize(
    "change",
    [
        {"op": "is-at"},
        {"op": 3},
        {"hwtype": 6},
        {"ptype": 0x86DD},
        {"hwlen": 8},
        {"plen": 16},
        {"pdst": "10.0.0.2"},
        {"hwsrc": "ff:ff:ff:ff:ff:ff"},
    ],
)
def test_other_arp_is_not_answered(change):
    fields = {
        "op": 1,
        "hwsrc": ASKER,
        "psrc": ASKER_IP,
        "pdst": ADDRESS,
        "hwtype": 1,
        "ptype": 0x0800,
        "hwlen": 6,
        "plen": 4,
    }
    assert answer(padded(Ether(src=ASKER, dst=MAC) / ARP(**fields)), OWN) is not None
    assert answer(padded(Ether(src=ASKER, dst=MAC) / ARP(**fields | change)), OWN) is None


def ping(size: int, fill=lambda k: k & 255, **ip) -> Ether:
    """A request of `size` bytes before padding."""
    return (
        Ether(src=ASKER, dst=MAC)
        / IP(**({"src": ASKER_IP, "dst": ADDRESS, "ttl": 37, "id": 4711, "flags": "DF", "tos": 0x2C} | ip))
        / ICMP(type=8, id=0x1234, seq=7)
        / Raw(bytes(fill(k) for k in range(size - 42)))
    )


@pytest.mark.parametrize("size", [42, 43, 44, 59, 60, 61, 63, 64, 65, 100, 101, 1513, 1514])
def test_ping_comes_back_with_right_checksums(size):
    request = padded(ping(size))
    reply = answer(request, OWN)
    packet = Ether(reply)
    assert (packet.src, packet.dst, packet[IP].src, packet[IP].dst) == (MAC, ASKER, ADDRESS, ASKER_IP)
    assert (packet[ICMP].type, packet[ICMP].code, packet[ICMP].id, packet[ICMP].seq) == (0, 0, 0x1234, 7)
    assert (packet[IP].ttl, packet[IP].id, packet[IP].tos, packet[IP].len) == (37, 4711, 0x2C, size - 14)
    assert reply[38:] == request[38:]
    seen = packet[IP].chksum, packet[ICMP].chksum
    del packet[IP].chksum, packet[ICMP].chksum
    again = Ether(bytes(packet))
    assert (again[IP].chksum, again[ICMP].chksum) == seen
    assert packet[ICMP].answers(Ether(request)[ICMP])


def test_every_icmp_checksum_is_updated_to_a_right_one():
    """Two bytes of payload take the checksum through all its values."""
    bare = bytes(Ether(src=ASKER, dst=MAC) / IP(src=ASKER_IP, dst=ADDRESS) / ICMP(type=8, id=0, seq=0) / Raw(bytes(2)))
    for value in range(0x10000):
        total = 0x0800 + value
        checksum = 0xFFFF - (total % 0x10000 + total // 0x10000)
        reply = answer(bare[:36] + checksum.to_bytes(2, "big") + bytes(4) + value.to_bytes(2, "big"), OWN)
        halves = int.from_bytes(reply[34:36], "big") + int.from_bytes(reply[36:38], "big") + value
        assert halves % 0xFFFF == 0 and halves, f"payload {value:#06x}"


def test_a_wrong_icmp_checksum_stays_wrong():
    request = bytearray(padded(ping(100)))
    request[36] ^= 1
    reply = Ether(answer(bytes(request), OWN))
    seen = reply[ICMP].chksum
    del reply[ICMP].chksum
    assert Ether(bytes(reply))[ICMP].chksum != seen


@pytest.mark.parametrize(
    "change",
    [
        {"flags": "MF"},
        {"frag": 1},
        {"ihl": 6, "options": b"\1\1\1\1"},
        {"dst": "10.0.0.2"},
        {"proto": 17},
        {"version": 6},
        {"chksum": 1},
        {"len": 27},
        {"len": 101 - 14},
    ],
)
def test_other_ipv4_is_not_answered(change):
    assert answer(padded(ping(100)), OWN) is not None
    assert answer(padded(ping(100, **change)), OWN) is None


@pytest.mark.parametrize(("field", "value"), [("type", 0), ("type", 13), ("code", 1)])
def test_other_icmp_is_not_answered(field, value):
    packet = ping(100)
    setattr(packet[ICMP], field, value)
    assert answer(padded(packet), OWN) is None


@pytest.mark.parametrize(
    ("src", "dst"), [(ASKER, "ff:ff:ff:ff:ff:ff"), (ASKER, "02:00:00:00:00:09"), ("03:00:00:00:00:01", MAC)]
)
def test_ping_to_another_or_from_a_group_is_not_answered(src, dst):
    packet = ping(100)
    packet[Ether].src, packet[Ether].dst = src, dst
    assert answer(padded(packet), OWN) is None

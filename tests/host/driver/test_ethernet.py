"""Frames against scapy's, and each wrong one by its reason."""

import struct

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import checksum

from iswitch.driver.ethernet import (
    BURST_HEADER_BYTES,
    HEADER_BYTES,
    BurstHeader,
    Endpoints,
    Fault,
    frame_headers,
    internet_checksum,
    payload_of,
)

OURS, SWITCH = "10.0.0.7", "10.0.0.1"
MACS = bytes.fromhex("020000000001"), bytes.fromhex("02000000000a")
ENDPOINTS = Endpoints(bytes([10, 0, 0, 7]), 40000, bytes([10, 0, 0, 1]), 26963)
SIZES = [1, 2, 17, 18, 1433, 1434, 8858]


def octets(size):
    return np.random.default_rng(size).bytes(size)


def from_switch(payload, **fields):
    """Return scapy's frame from the switch. Fields are those of Ethernet (`e_`), IPv4 (`i_`) and UDP (`u_`)."""
    parts = {"e": {}, "i": {"flags": "DF"}, "u": {}}
    for name, value in fields.items():
        parts[name[0]][name[2:]] = value
    ether = Ether(**{"dst": "02:00:00:00:00:0a", "src": "02:00:00:00:00:01"} | parts["e"])
    network = IP(**{"src": SWITCH, "dst": OURS} | parts["i"])
    return bytes(ether / network / UDP(**{"sport": 26963, "dport": 40000} | parts["u"]) / Raw(payload))


def unwrapped(frame, *, checked=False):
    found = payload_of(memoryview(frame), ENDPOINTS, checked=checked)
    return found if isinstance(found, Fault) else bytes(found)


@pytest.mark.parametrize("size", [*range(1, 9), *SIZES, 65535])
def test_the_checksum_is_scapy_s(size):
    data = octets(size)
    assert 0xFFFF ^ internet_checksum(data) == checksum(data)


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_is_scapy_s(size):
    payload = octets(size)
    frame = frame_headers(ENDPOINTS, MACS, payload) + payload
    ether = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:0a")
    network = IP(src=OURS, dst=SWITCH, id=0, flags="DF", ttl=64)
    assert frame == bytes(ether / network / UDP(sport=40000, dport=26963) / Raw(payload))
    assert len(frame) == HEADER_BYTES + size


def test_a_checksum_of_zero_is_sent_as_all_ones():
    """Zero says that there is no checksum (RFC 768)."""
    payload = struct.pack("!H", 0)
    rest = struct.unpack_from("!H", frame_headers(ENDPOINTS, MACS, payload), HEADER_BYTES - 2)[0]
    found = frame_headers(ENDPOINTS, MACS, struct.pack("!H", rest))
    assert found[-2:] == b"\xff\xff"


@pytest.mark.parametrize("size", SIZES)
def test_a_partial_checksum_is_completed_from_where_the_burst_header_says(size):
    payload = octets(size)
    described = BurstHeader(0).build()
    frame = bytearray(frame_headers(ENDPOINTS, MACS, payload, partial_checksum=True) + payload)
    flags, _, _, _, start, offset = struct.unpack("=BBHHHH", described)
    assert flags == 1
    struct.pack_into("!H", frame, start + offset, checksum(bytes(frame[start:])))
    assert frame == frame_headers(ENDPOINTS, MACS, payload) + payload


def test_a_burst_header_says_the_size_of_a_datagram():
    for size in (0, 1, 1434):
        built = BurstHeader(size).build()
        assert len(built) == BURST_HEADER_BYTES and BurstHeader.parse(built) == BurstHeader(size)


@pytest.mark.parametrize(("gso_type", "size"), [(1, 1400), (3, 1400), (4, 1400), (0x85, 1400), (5, 0)])
def test_a_long_frame_of_another_kind_is_refused(gso_type, size):
    with pytest.raises(ValueError, match="GSO type"):
        BurstHeader.parse(struct.pack("=BBHHHH", 0, gso_type, 42, size, 34, 6))


@pytest.mark.parametrize("padding", [0, 18])
@pytest.mark.parametrize("size", SIZES)
def test_the_payload_of_a_right_frame_is_found(size, padding):
    assert unwrapped(from_switch(octets(size)) + bytes(padding)) == octets(size)


def test_a_frame_without_a_udp_checksum_is_taken():
    assert unwrapped(from_switch(b"payload", u_chksum=0)) == b"payload"


def test_a_checksum_for_which_the_kernel_answers_is_not_looked_at():
    assert unwrapped(from_switch(b"payload", u_chksum=1), checked=True) == b"payload"


WRONG = {
    "shorter than its headers": (from_switch(b"")[: HEADER_BYTES - 1], Fault.LENGTH),
    "no IPv4": (from_switch(b"p", e_type=0x86DD), Fault.OTHER),
    "no UDP": (from_switch(b"p", i_proto=6), Fault.OTHER),
    "from another host": (from_switch(b"p", i_src="10.0.0.2"), Fault.OTHER),
    "to another host": (from_switch(b"p", i_dst="10.0.0.8"), Fault.OTHER),
    "from another port": (from_switch(b"p", u_sport=26964), Fault.OTHER),
    "to another port": (from_switch(b"p", u_dport=40001), Fault.OTHER),
    "with options": (from_switch(b"p", i_options=[IPOption_NOP()] * 4), Fault.OPTIONS),
    "of another version": (from_switch(b"p", i_version=6), Fault.OPTIONS),
    "with a wrong header checksum": (from_switch(b"p", i_chksum=1), Fault.IP_CHECKSUM),
    "first fragment": (from_switch(b"p", i_flags="MF"), Fault.FRAGMENT),
    "last fragment": (from_switch(b"p", i_frag=1), Fault.FRAGMENT),
    "with a wrong checksum": (from_switch(b"p", u_chksum=1), Fault.UDP_CHECKSUM),
    "cut off": (from_switch(b"payload")[:-1], Fault.LENGTH),
    "IPv4 longer than UDP": (from_switch(b"payload", u_len=14), Fault.LENGTH),
    "UDP longer than IPv4": (from_switch(b"payload", i_len=34), Fault.LENGTH),
    "UDP shorter than its header": (from_switch(b"", i_len=27, u_len=7), Fault.LENGTH),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_frame_is_ignored_for_its_reason(name):
    frame, fault = WRONG[name]
    assert unwrapped(frame) == fault


def test_a_flipped_bit_is_noticed_wherever_it_matters():
    """Addresses, lengths, ports and payload; the MAC addresses are the device's business."""
    right = bytearray(from_switch(octets(33)))
    for bit in range(8 * 12, 8 * len(right)):
        right[bit // 8] ^= 1 << bit % 8
        assert isinstance(unwrapped(right), Fault), bit
        right[bit // 8] ^= 1 << bit % 8

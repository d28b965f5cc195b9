"""Frames in C against those in Python: a ring in memory, and a socket that shows what is sent."""

import os
import shutil
import socket
import struct

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from iswitch.driver.ethernet import BurstHeader, Endpoints, Fault, frame_headers, payload_of
from iswitch.native.loader import SOURCES, best_level, build, library, load
from iswitch.native.records import Exchange, ExchangeEvent
from iswitch.wire import CONTRIBUTION_HEADER, HEADER

MACS = bytes.fromhex("02000000000a"), bytes.fromhex("020000000001")
ENDPOINTS = Endpoints(bytes([10, 0, 0, 7]), 40000, bytes([10, 0, 0, 1]), 26963)
EMPTY = BurstHeader(0).build() + frame_headers(ENDPOINTS, MACS, b"", partial_checksum=True)
SLOT_BYTES, SLOTS_PER_BLOCK, BLOCK_BYTES, SLOTS = 2048 + 65536, 3, 1 << 18, 6
FRAME_AT = 96
USER, LATER, VALID, LOSING = 1, 8, 0x80, 4
SIZES = [1, 17, 18, 1433, 1434, 8858, 65507]


def octets(size):
    return np.random.default_rng(size).bytes(size)


def from_switch(payload, *, options=None, **fields):
    network = IP(src="10.0.0.1", dst="10.0.0.7", flags="DF", options=options or [])
    made = Ether(dst=MACS[1].hex(":"), src=MACS[0].hex(":")) / network / UDP(sport=26963, dport=40000) / Raw(payload)
    for name, value in fields.items():
        setattr(made[IP] if name.startswith("i_") else made[UDP], name[2:], value)
    return bytes(made)


class Run:
    """One call of `exchange_run`, which finds a frame in a slot."""

    def __init__(self, run, frame, *, status=USER | LATER, burst=None, slot=0, length=None):
        self.memory, self.buffer = np.zeros(2 * BLOCK_BYTES, np.uint8), np.zeros(1 << 16, np.uint8)
        at = slot // SLOTS_PER_BLOCK * BLOCK_BYTES + slot % SLOTS_PER_BLOCK * SLOT_BYTES
        header = struct.pack("=IIIHH", status, length or len(frame), len(frame), FRAME_AT, FRAME_AT + 14)
        header = header.ljust(FRAME_AT - 10, b"\0") + (BurstHeader(0).build() if burst is None else burst) + frame
        self.memory[at : at + len(header)] = np.frombuffer(header, np.uint8)
        self.state = state = Exchange()
        lacked, headers = np.ones(8, np.uint8), np.frombuffer(EMPTY, np.uint8)
        state.lacked, state.frame_headers = lacked.ctypes.data, headers.ctypes.data
        state.ring, state.buffer = self.memory.ctypes.data, self.buffer.ctypes.data
        state.block_bytes, state.slots_per_block, state.slot_bytes = BLOCK_BYTES, SLOTS_PER_BLOCK, SLOT_BYTES
        state.slots, state.slot, state.end, state.length, state.reach = SLOTS, slot, 1, 8, 4
        reading, writing = os.pipe()
        state.fd = reading
        self.event = run(state, 0.0)
        os.close(reading)
        os.close(writing)
        self.released = not self.memory[at]

    @property
    def payload(self):
        """What C has taken, or None if it leaves the frame to Python."""
        if self.event == ExchangeEvent.FRAME:
            assert not self.released
            return None
        assert self.event == ExchangeEvent.RESULTS and self.released and self.state.received
        return self.buffer[: self.state.size].tobytes()


def check_that_frames_are_read(run):
    for size in SIZES:
        for status in (USER | LATER, USER | VALID, USER | VALID | LOSING):
            found = Run(run, from_switch(octets(size)) + bytes(size % 2), status=status)
            assert found.payload == octets(size) and found.state.datagram_bytes == size
    for slot in range(SLOTS):
        found = Run(run, from_switch(b"payload"), slot=slot)
        assert found.payload == b"payload" and found.state.slot == (slot + 1) % SLOTS
    assert Run(run, from_switch(b"payload"), status=0).event == ExchangeEvent.TIMEOUT


def check_that_bursts_are_read(run):
    for size, segment_bytes in ((3000, 1434), (1434, 1434), (20, 1434)):
        found = Run(run, from_switch(octets(size)), burst=BurstHeader(segment_bytes).build())
        assert found.payload == octets(size) and found.state.datagram_bytes == min(size, segment_bytes)
    for gso_type, segment_bytes in ((1, 1434), (3, 1434), (0x85, 1434), (5, 0)):
        burst = struct.pack("=BBHHHH", 1, gso_type, 42, segment_bytes, 34, 6)
        assert Run(run, from_switch(octets(3000)), burst=burst).payload is None


def check_that_unusual_frames_are_left(run):
    right = from_switch(octets(33))
    assert Run(run, right, status=USER).payload is None  # its checksum was not checked
    assert Run(run, right, length=len(right) + 1).payload is None
    assert Run(run, right[:41]).payload is None
    assert Run(run, from_switch(b"")).payload is None
    wrong = [
        from_switch(b"p", options=[IPOption_NOP()] * 4),
        from_switch(b"p", i_version=6),
        from_switch(b"p", i_flags="MF"),
        from_switch(b"p", i_frag=1),
        from_switch(b"p", i_len=28),
        from_switch(b"p", u_len=8),
        from_switch(b"p", u_len=10),
        from_switch(b"p", i_len=60, u_len=40),
        from_switch(b"p", i_proto=6),
        from_switch(b"p", i_src="10.0.0.2"),
        from_switch(b"p", i_dst="10.0.0.8"),
        from_switch(b"p", u_sport=40000, u_dport=26963),
        from_switch(b"p", i_chksum=1),
    ]
    for bit in range(8 * 12, 8 * 40):
        flipped = bytearray(right)
        flipped[bit // 8] ^= 1 << bit % 8
        wrong.append(bytes(flipped))
    for frame in wrong:
        assert isinstance(payload_of(memoryview(frame), ENDPOINTS, checked=True), Fault)
        assert Run(run, frame).payload is None, frame.hex()


def check_that_frames_are_written(run):
    """Of each burst of a collective with segments of 8 and a last one of 4 bytes."""
    array, header = np.arange(100, dtype="<f4"), np.zeros(1, CONTRIBUTION_HEADER)
    for bytes_all, most in ((8, 1), (12, 1), (12, 2), (68, 4), (80, 64)):
        segments = -(-bytes_all // 8)
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with near, far:
            state, memory = Exchange(), np.zeros(BLOCK_BYTES, np.uint8)
            lacked, times, requests = np.ones(99, np.uint8), np.zeros(99), np.zeros(99, np.uint32)
            headers = np.frombuffer(EMPTY, np.uint8)
            state.fd, state.frame_headers, state.ring = near.fileno(), headers.ctypes.data, memory.ctypes.data
            state.block_bytes, state.slots_per_block, state.slot_bytes, state.slots = BLOCK_BYTES, 1, 4096, 1
            state.header, state.array = header.ctypes.data, array.ctypes.data
            state.lacked, state.requested_at, state.requests = (a.ctypes.data for a in (lacked, times, requests))
            state.segment_bytes, state.last_bytes = 8, bytes_all - 8 * (segments - 1)
            state.window, state.burst_segments, state.end, state.length, state.reach = 64, most, segments, 99, 4
            assert run(state, 0.0) == ExchangeEvent.TIMEOUT
            for first in range(0, segments, most):
                count = min(most, segments - first)
                frame = far.recv(1 << 16)
                payload = frame[len(EMPTY) :]
                burst = BurstHeader(HEADER.itemsize + 8 if len(payload) > HEADER.itemsize + 8 else 0)
                wanted = burst.build() + frame_headers(ENDPOINTS, MACS, payload, partial_checksum=True)
                assert frame[: len(EMPTY)] == wanted
                data = array.tobytes()[8 * first : min(8 * (first + count), bytes_all)]
                assert len(payload) == count * HEADER.itemsize + len(data)
                assert payload[HEADER.itemsize : HEADER.itemsize + 8] == data[:8]


CHECKS = {
    check.__name__: check
    for check in (
        check_that_frames_are_read,
        check_that_bursts_are_read,
        check_that_unusual_frames_are_left,
        check_that_frames_are_written,
    )
}


@pytest.mark.parametrize("name", CHECKS)
def test_c_reads_and_writes_frames_as_python_does(name):
    CHECKS[name](library().exchange_run)


MUTANTS = [
    ("slot->tp_snaplen < slot->tp_len ||", ""),
    ("TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID", "TP_STATUS_CSUMNOTREADY"),
    ("!(slot->tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID))", "0"),
    ("net_u16_at(frame + 12) != 0x0800 || ", ""),
    ("ip[0] != 0x45 || ", ""),
    ("(net_u16_at(ip + 6) & 0x3FFF) || ", ""),
    ("ip[9] != 17 ||", ""),
    ("memcmp(ip + 12, sent + 16, 4) || ", ""),
    ("memcmp(ip + 16, sent + 12, 4) || ", ""),
    ("memcmp(udp, sent + IP_BYTES + 2, 2) ||", ""),
    ("memcmp(udp + 2, sent + IP_BYTES, 2) || ", ""),
    (" || checksum_words(ip, IP_BYTES) != 0xFFFF", ""),
    ("udp_bytes <= UDP_BYTES || ", ""),
    ("net_u16_at(ip + 2) != IP_BYTES + udp_bytes ||", ""),
    (" ||\n        ETHERNET_BYTES + IP_BYTES + udp_bytes > slot->tp_len", ""),
    ("burst[1] != GSO_UDP || ", ""),
    ("if (size < *bytes) *segment = size;", ""),
    ("put_net_u16(ip + 10, 0);", ""),
    ("net_u16_at(udp + 6) + bytes", "net_u16_at(udp + 6)"),
    ("if (bytes > segment) {", "if (bytes > 0) {"),
    ("x->slot / x->slots_per_block", "0"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("right", "wrong"), MUTANTS)
def test_a_mutant_of_the_frames_is_noticed(tmp_path, right, wrong):
    sources = tmp_path / "native"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = (sources / "frame.h").read_text()
    assert text.count(right) == 1
    (sources / "frame.h").write_text(text.replace(right, wrong))
    mutated = load(build(tmp_path, ["cc", "-w"], best_level(), sources=sources)).exchange_run
    child = os.fork()  # a mutant may write where it must not
    if not child:
        status = 1
        try:
            for check in CHECKS.values():
                check(mutated)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] != 0

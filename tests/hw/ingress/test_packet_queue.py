# amaranth: UnusedElaboratable=no
"""The ingress queue: whole frames or nothing, and what is known of each."""

import random
import struct

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import checksum

from hw.ethernet.overflow import Overflow
from hw.ingress.packet_queue import PacketQueue
from sim.bench.stream import STALLS, Bench, from_words, to_words

BUSES = [64, 256, 512]
SIZES = [60, 61, 62, 63, 64, 65, 66, 67, 68, 127, 128, 129, 1514]
QUIET = {"stat_frame": 0, "stat_error": 0, "stat_overflow": 0, "stat_runt": 0, "stat_oversize": 0}


class Entry(wiring.Component):
    """`Overflow` in front of the queue, as in every MAC: `i` cannot stall."""

    def __init__(self):
        self.overflow, self.queue = Overflow(bus_bits=256), queue(256)
        super().__init__(
            {
                "i": self.overflow.signature.members["i"],
                **{name: self.queue.signature.members[name] for name in ("o", "scans", *QUIET)},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.overflow, m.submodules.queue = self.overflow, self.queue
        connect(m, flipped(self.i), self.overflow.i)
        connect(m, self.overflow.o, self.queue.i)
        connect(m, self.queue.o, flipped(self.o))
        connect(m, self.queue.scans, flipped(self.scans))
        m.d.comb += [getattr(self, name).eq(getattr(self.queue, name)) for name in QUIET]
        return m


def queue(bus_bits, *, depth_bytes=4096, frame_bytes_max=1518, scans_depth=32):
    return PacketQueue(
        bus_bits=bus_bits, depth=depth_bytes * 8 // bus_bits, frame_bytes_max=frame_bytes_max, scans_depth=scans_depth
    )


def words(frames, bus_bits, errors=()):
    return [word for k, frame in enumerate(frames) for word in to_words(frame, bus_bits, error=k in errors)]


def noise(size, seed=0):
    return random.Random(seed * 10000 + size).randbytes(size)


def run(bus_bits, frames, *, errors=(), stalls=0, **options):
    dut = queue(bus_bits, **options)
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.i, words(frames, bus_bits, errors))
    out, scans = bench.sink(dut.o), bench.sink(dut.scans)
    assert bench.run(read=[dut.busy]) == [0]
    return from_words(out.items, bus_bits), scans.items, bench.strobes


def udp(payload, **fields):
    """A sound frame, put together by scapy."""
    packet = (
        Ether(dst="02:57:49:00:00:01", src="02:00:00:00:00:07", type=0x0800)
        / IP(src="10.0.0.107", dst="10.0.0.1")
        / UDP(sport=40007, dport=0x6953, **fields)
        / payload
    )
    return bytes(packet)


def expected_scan(frame):
    """Length, checksum verdicts and exponent by third-party arithmetic (scapy, numpy)."""
    pseudo = frame[26:34] + struct.pack(">H", 17) + frame[38:40]
    elements = frame[64:].ljust(-(-len(frame) // 4) * 4 - 64, b"\0")
    exponents = np.frombuffer(elements, "<u4") >> 23 & 0xFF
    return (
        len(frame),
        checksum(frame[14:34]) == 0,
        frame[40:42] == bytes(2) or checksum(pseudo + frame[34:]) == 0,
        int(exponents.max(initial=0)),
    )


def scan_tuple(scan):
    return scan.length, bool(scan.ip_good), bool(scan.udp_good), scan.exponent


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_frames_leave_as_they_came(bus_bits, stalls):
    frames = [noise(size) for size in SIZES]
    out, scans, strobes = run(bus_bits, frames, stalls=stalls)
    assert out == frames
    assert [scan.length for scan in scans] == SIZES
    assert strobes == QUIET | {"stat_frame": len(SIZES)}


BAD = [
    (64, True, "stat_error"),
    (300, True, "stat_error"),
    (59, True, "stat_error"),
    (301, True, "stat_error"),
    (59, False, "stat_runt"),
    (1, False, "stat_runt"),
    (301, False, "stat_oversize"),
    (380, False, "stat_oversize"),
    (1100, False, "stat_oversize"),
    (1100, True, "stat_error"),
]
"""Frames that must not get through where the longest is 300 bytes and the memory 1,024: bytes, bad FCS or not,
strobe."""


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_bad_frame_is_forgotten_and_its_neighbours_are_not(bus_bits, stalls):
    frames, errors, good = [noise(60)], set(), [noise(60)]
    for k, (size, error, _) in enumerate(BAD):
        errors |= {len(frames)} if error else set()
        frames += [noise(size, 1), noise(300 if k % 2 else 60 + k)]
        good.append(frames[-1])
    frames, errors = [*frames, noise(10, 2), noise(59, 2)], errors | {len(frames)}
    out, scans, strobes = run(bus_bits, frames, errors=errors, stalls=stalls, frame_bytes_max=300, depth_bytes=1024)
    assert out == good
    assert [scan_tuple(scan) for scan in scans] == [expected_scan(frame) for frame in good]
    assert strobes == QUIET | {"stat_frame": len(good), "stat_error": 6, "stat_runt": 3, "stat_oversize": 3}


@pytest.mark.parametrize(("size", "error", "strobe"), BAD)
def test_bad_frame_raises_exactly_its_strobe(size, error, strobe):
    out, scans, strobes = run(512, [noise(size)], errors={0} if error else (), frame_bytes_max=300, depth_bytes=1024)
    assert (out, scans) == ([], [])
    assert strobes == QUIET | {strobe: 1}


@pytest.mark.parametrize("size", [1, 60, 300, 380, 1100])
@pytest.mark.parametrize("bus_bits", BUSES)
def test_frame_that_the_mac_truncated_is_overflow_and_no_error(bus_bits, size):
    dut = queue(bus_bits, frame_bytes_max=300, depth_bytes=1024)
    bench = Bench(dut)
    bench.source(
        dut.i,
        [
            *to_words(noise(60), bus_bits),
            *to_words(noise(size), bus_bits, truncated=True),
            *to_words(noise(300), bus_bits),
        ],
    )
    out, scans = bench.sink(dut.o), bench.sink(dut.scans)
    bench.run()
    assert from_words(out.items, bus_bits) == [noise(60), noise(300)] and len(scans.items) == 2
    assert bench.strobes == QUIET | {"stat_frame": 2, "stat_overflow": 1}


def test_intact_frames_beyond_what_the_pipeline_takes_are_overflow_and_no_error():
    """The shared pipeline has little time for this port."""
    dut = Entry()
    frames = [noise(128, k) for k in range(400)]
    bench = Bench(dut)
    bench.source(dut.i, words(frames, 256), stalls=0.3)
    out = bench.sink(dut.o, stalls=0.85)
    bench.sink(dut.scans)
    bench.run()
    lost = bench.strobes["stat_overflow"]
    assert 50 < lost < 350 and bench.strobes == QUIET | {"stat_frame": 400 - lost, "stat_overflow": lost}
    kept = from_words(out.items, 256)
    assert len(kept) == 400 - lost and set(kept) < set(frames)


def sound_and_spoilt():
    """Frames of every length with right checksums, and each of them with one bit wrong somewhere."""
    rng, frames = random.Random(3), []
    for size in (18, 19, 22, 24, 27, 86):
        frame = udp(rng.randbytes(size))
        frames.append(frame)
        for at in rng.sample((14, 24, 33, 34, 38, 40, len(frame) - 1), 3):
            frames.append(frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :])
    # No checksum at all (RFC 768), and one that comes out as zero and is sent as 0xFFFF.
    none = udp(bytes(30), chksum=0)
    folded = udp(bytes(28) + struct.pack(">H", int.from_bytes(udp(bytes(30))[40:42], "big")))
    assert folded[40:42] == b"\xff\xff"
    return [*frames, none, none[:24] + b"\0\0" + none[26:], folded, udp(b"\xff" * 40)]


@pytest.mark.parametrize("bus_bits", BUSES)
def test_checksum_verdicts_are_those_of_rfc_1071(bus_bits):
    frames = sound_and_spoilt()
    scans = [scan_tuple(scan) for scan in run(bus_bits, frames)[1]]
    assert scans == [expected_scan(frame) for frame in frames]
    assert {scan[1:3] for scan in scans} == {(a, b) for a in (True, False) for b in (True, False)}


@pytest.mark.parametrize("bus_bits", BUSES)
def test_exponent_is_the_largest_in_the_payload_and_nowhere_else(bus_bits):
    rng, frames = np.random.default_rng(5), []
    for size in (0, 1, 2, 7, 8, 9, 16, 17):
        small = rng.integers(0, 120, size) << 23 | rng.integers(0, 1 << 23, size) | rng.integers(0, 2, size) << 31
        for at in {0, size // 2, size - 1} if size else ():
            numbers = small.astype("<u4")
            numbers[at] = rng.choice([0x7F800000, 0xFFC00001, 0x3F800000, 0x7F7FFFFF])
            frames.append(b"\xff" * 64 + numbers.tobytes())
        frames.append(b"\xff" * 64 + small.astype("<u4").tobytes())
    frames += [b"\xff" * 64 + b"\xff" * tail for tail in (1, 2, 3)]
    exponents = [scan.exponent for scan in run(bus_bits, frames)[1]]
    assert exponents == [expected_scan(frame)[3] for frame in frames]


def test_one_frame_after_another_each_word_one_cycle():
    dut = queue(256)
    bench = Bench(dut)
    source = bench.source(dut.i, words([noise(1514)] * 4, 256))
    out, scans = bench.sink(dut.o), bench.sink(dut.scans)
    bench.run()
    assert source.times == list(range(source.times[0], source.times[0] + 192))
    assert out.times == list(range(out.times[0], out.times[0] + 192))
    assert len(scans.items) == 4


@pytest.mark.parametrize("bus_bits", BUSES)
@pytest.mark.parametrize("size", [60, 64, 65, 1514])
def test_frame_appears_7_cycles_after_its_last_word(bus_bits, size):
    dut = queue(bus_bits)
    bench = Bench(dut)
    source, out, scans = bench.source(dut.i, words([noise(size)], bus_bits)), bench.sink(dut.o), bench.sink(dut.scans)
    bench.run()
    assert out.times[0] == source.times[-1] + 7
    assert out.times == list(range(out.times[0], out.times[0] + len(source.times)))
    assert scans.times[0] <= out.times[0]


def test_full_memory_stalls_the_input_and_loses_nothing():
    dut = queue(256)
    frames = [noise(1500, k) for k in range(6)]
    bench = Bench(dut)
    source, out = bench.source(dut.i, words(frames, 256)), bench.sink(dut.o, start=1000)
    bench.sink(dut.scans)
    bench.run()
    assert dut.depth <= sum(taken < 1000 for taken in source.times) <= dut.depth + 1
    assert from_words(out.items, 256) == frames
    assert bench.strobes == QUIET | {"stat_frame": 6}


def test_scans_not_taken_stall_the_input_and_none_is_lost():
    dut = queue(512, depth_bytes=8192, scans_depth=16)
    frames = [noise(60, k) for k in range(40)]
    bench = Bench(dut)
    source, out, scans = bench.source(dut.i, words(frames, 512)), bench.sink(dut.o), bench.sink(dut.scans, start=500)
    bench.run()
    assert sum(taken < 500 for taken in source.times) <= 16
    assert from_words(out.items, 512) == frames
    assert [scan_tuple(scan) for scan in scans.items] == [expected_scan(frame) for frame in frames]


def test_oversize_frame_does_not_wait_for_room_it_will_not_need():
    dut = PacketQueue(bus_bits=512, depth=32, frame_bytes_max=1518)
    bench = Bench(dut)
    bench.source(dut.i, words([noise(60), noise(9000), noise(64)], 512))
    out = bench.sink(dut.o, start=400)
    bench.sink(dut.scans)
    bench.run()
    assert from_words(out.items, 512) == [noise(60), noise(64)]
    assert bench.strobes == QUIET | {"stat_frame": 2, "stat_oversize": 1}


@pytest.mark.parametrize("bus_bits", BUSES)
@pytest.mark.parametrize("short", [1, 2, 9])
def test_oversize_frame_never_blocks_the_smallest_memory(bus_bits, short):
    """The longest frame leaves one word free and a bit; a longer one comes with pauses, so that its every word waits
    for room."""
    longest = 31 * bus_bits // 8 - short
    frames = [noise(60), noise(longest), noise(longest + 1), noise(longest + 600), noise(64)]
    out, _, strobes = run(bus_bits, frames, stalls=0.5, depth_bytes=4 * bus_bits, frame_bytes_max=longest)
    assert out == [frames[0], frames[1], frames[4]]
    assert strobes == QUIET | {"stat_frame": 3, "stat_oversize": 2}


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="PacketQueue bus_bits must be 64, 256 or 512, not 128"):
        PacketQueue(bus_bits=128, depth=128, frame_bytes_max=1518)


@pytest.mark.parametrize(("depth", "longest"), [(100, 1518), (32, 1518), (0, 1518), (64, 63 * 32)])
def test_depth_wrong(depth, longest):
    """Of 64 words one stays free. The first word beyond them must find room, or the overflow would not be noticed."""
    rule = (
        f"PacketQueue depth must be a power of two that holds more than a word beside a frame of {longest} bytes, "
        f"not {depth}"
    )
    with pytest.raises(ValueError, match=rule):
        PacketQueue(bus_bits=256, depth=depth, frame_bytes_max=longest)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_the_tail_of_a_frame_of_complete_elements_is_reported(bus_bits, stalls):
    frames = [noise(size) for size in (*range(72, 140, 4), 256, 1516)]
    _, scans, _ = run(bus_bits, frames, stalls=stalls)
    assert [(scan.tainted, scan.partial) for scan in scans] == [
        (int.from_bytes(frame[-8:-4], "little"), frame[-4] & 1) for frame in frames
    ]

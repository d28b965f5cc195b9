# amaranth: UnusedElaboratable=no
"""Frames' checksums, exponents and tails as scapy and numpy see them, however their words come."""

import random
import struct
from functools import partial

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import checksum

import hw.ingress.scanner
from hw.ingress.scanner import Scanner
from iswitch.golden.numeric.lane import exponent_limit
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, to_words


def frames_of(seed):
    """UDP frames with payloads of whole elements; every other frame has a wrong bit."""
    rng = random.Random(seed)
    frames = []
    for k in range(16):
        numbers = np.frombuffer(rng.randbytes(4 * rng.randrange(8, 40)), "<u4")
        numbers = numbers & 0x807FFFFF | rng.randrange(120) << 23 if k % 3 else numbers
        packet = Ether(dst="02:57:49:00:00:01", src="02:00:00:00:00:07") / IP(src="10.0.0.107", dst="10.0.0.1")
        frame = bytearray(bytes(packet / UDP(sport=40007, dport=0x6953) / (rng.randbytes(22) + numbers.tobytes())))
        if k % 2:
            frame[rng.choice((14, 20, 26, 31, 34, 38, 60, len(frame) - 1))] ^= 1 << rng.randrange(8)
        frames.append(bytes(frame))
    frames.append(frames[0][:40] + bytes(2) + frames[0][42:])  # no UDP checksum
    return frames


def expected(frame):
    pseudo = frame[26:34] + struct.pack(">H", 17) + frame[38:40]
    return {
        "length": len(frame),
        "ip_good": int(checksum(frame[14:34]) == 0),
        "udp_good": int(frame[40:42] == bytes(2) or checksum(pseudo + frame[34:]) == 0),
        "exponent": int((np.frombuffer(frame[64:], "<u4") >> 23 & 0xFF).max()),
        "ranks": int.from_bytes(frame[-12:-8], "little"),
        "tainted": int.from_bytes(frame[-8:-4], "little"),
        "identity": int.from_bytes(frame[-4:-2], "little"),
        "partial": frame[-4] & 1,
    }


def half_frames_of(seed):
    """Frames of every format, one after the other, that name theirs; the exponents of the patterns vary."""
    rng, frames = random.Random(seed), []
    for k in range(24):
        format = (Format.BF16, Format.FP16, Format.WINDOW64, 15)[k % 4]
        limit = rng.choice((0x3C00, 0x7800, 0x7BFF, 0x7C00, 0x7FFF))
        halves = np.frombuffer(rng.randbytes(4 * rng.randrange(1, 40)), "<u2")
        halves = halves & 0x83FF
        halves[rng.randrange(halves.size)] |= np.uint16(limit)
        packet = Ether(dst="02:57:49:00:00:01", src="02:00:00:00:00:07") / IP(src="10.0.0.107", dst="10.0.0.1")
        header = bytearray(rng.randbytes(22))
        header[9] = rng.randrange(16) << 4 | format
        frames.append(bytes(packet / UDP(sport=40007, dport=0x6953) / (bytes(header) + halves.tobytes())))
    return frames


def exponent_expected(frame):
    """The largest exponent of the elements as binary32; of binary16, 255 or whatever no limit reaches."""
    format = frame[51] & 15
    if format == Format.BF16:
        return int((np.frombuffer(frame[64:], "<u2") >> 7 & 0xFF).max())
    if format == Format.FP16:
        return 0 if np.isfinite(np.frombuffer(frame[64:], "<f2")).all() else 255
    return expected(frame)["exponent"]


def check_half_width(bus_bits, gap, scanner=Scanner):
    frames = half_frames_of(bus_bits)
    found = scans(bus_bits, frames, gap=gap, scanner=partial(scanner, half_width=True))
    assert len(found) == len(frames)
    for (scan, _, latency), frame in zip(found, frames, strict=True):
        exponent = scan.pop("exponent")
        if frame[51] & 15 == Format.FP16 and exponent < exponent_limit(max(FORMATS[Format.FP16].fractions)):
            exponent = 0
        wanted = expected(frame)
        del wanted["exponent"]
        assert (scan, latency, exponent) == (wanted, Scanner.LATENCY, exponent_expected(frame))


@pytest.mark.parametrize("gap", [0.0, 0.5])
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_exponents_of_two_byte_elements_are_those_that_the_frames_format_has(bus_bits, gap):
    check_half_width(bus_bits, gap)


@pytest.mark.mutant
@pytest.mark.parametrize("bus_bits", [64, 512])
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.valid & (index == at_word)", "self.valid"),
        ("[:FLAGS_SHIFT]", "[4:8]"),
        ("larger(*exponents)", "exponents[0]"),
        ("Mux(self.word.count > 4 * k, larger(*exponents), 0)", "larger(*exponents)"),
    ],
)
def test_a_mutant_that_reads_other_exponents_is_noticed(sound, wrong, bus_bits):
    with pytest.raises(AssertionError):
        check_half_width(bus_bits, 0.5, mutant(hw.ingress.scanner, sound, wrong).Scanner)


def scans(bus_bits, frames, *, gap=0.0, bad=(), scanner=Scanner):
    """Return the scans with their tags and the cycles from a frame's last word to its scan. `bad`: frames that are not
    kept."""
    dut = scanner(bus_bits=bus_bits, tag_bits=8)
    bench, found, ends, rng = Bench(dut), [], {}, random.Random(7)

    async def drive(ctx):
        cycle = 0

        async def tick():
            nonlocal cycle
            if ctx.get(dut.done):
                scan, tag = ctx.get(dut.scan), ctx.get(dut.tag_o)
                found.append(({name: scan[name] for name in expected(frames[0])}, tag, cycle - ends[tag]))
            await ctx.tick()
            cycle += 1

        for k, frame in enumerate(frames):
            sent = 0
            for at, word in enumerate(to_words(frame, bus_bits)):
                while rng.random() < gap:
                    ctx.set(dut.valid, 0)
                    ctx.set(dut.word.data, rng.getrandbits(bus_bits))
                    await tick()
                sent += word["count"]
                ctx.set(dut.valid, 1)
                for name in ("data", "count", "last"):
                    ctx.set(dut.word[name], word[name])
                ctx.set(dut.first, at == 0)
                ctx.set(dut.good, word["last"] and k not in bad)
                ctx.set(dut.length, sent)
                ctx.set(dut.tag, k)
                if word["last"]:
                    ends[k] = cycle
                await tick()
        ctx.set(dut.valid, 0)
        for _ in range(20):
            await tick()

    bench.drive(drive)
    return found


@pytest.mark.parametrize("gap", [0.0, 0.5])
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_scans_are_those_of_scapy_and_numpy(bus_bits, gap):
    frames = frames_of(bus_bits)
    found = scans(bus_bits, frames, gap=gap)
    assert [(scan, tag) for scan, tag, _ in found] == [(expected(frame), k) for k, frame in enumerate(frames)]
    assert {latency for _, _, latency in found} == {Scanner.LATENCY}
    verdicts = {(scan["ip_good"], scan["udp_good"]) for scan, _, _ in found}
    assert verdicts >= {(1, 1), (1, 0)}


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_frame_that_is_not_kept_has_no_scan(bus_bits):
    frames = frames_of(3)
    found = scans(bus_bits, frames, bad={0, 3, 4, 16})
    assert [tag for _, tag, _ in found] == [k for k in range(17) if k not in {0, 3, 4, 16}]


MUTANTS = {
    "bytes behind the end count": ("(self.word.count > byte) & ~before_ip", "~before_ip"),
    "bytes before IP count": ("(self.word.count > byte) & ~before_ip", "self.word.count > byte"),
    "the length counts once": ("(udp_sum + parted.length_again)[:22]", "udp_sum"),
    "no protocol": ("protocol = IP_PROTOCOL_UDP << 8", "protocol = 0 << 8"),
    "the sum of another frame": ("Mux(summed.first,", "Mux(0,"),
    "the header has exponents": ("Mux(in_payload, exponent, 0)", "exponent"),
    "the exponent of the last word": ("larger(before.exponent, summed.exponent)", "summed.exponent"),
    "a word counts twice": ("with m.If(summed_valid):", "if True:"),
    "ranks of another word": ("[*quads_before, *quads[:-2]]", "[*quads[-2:], *quads[:-2]]"),
    "a word that has not come": ("when=masked_valid,", "when=self.valid,"),
    "the checksum is always there": ("folded.no_checksum | is_sound", "is_sound"),
    "a bad frame is kept": ("summed.last & summed.good", "summed.last"),
}


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_scanner_is_noticed(sound, wrong):
    frames = frames_of(64)
    found = scans(64, frames, gap=0.5, bad={2}, scanner=mutant(hw.ingress.scanner, sound, wrong).Scanner)
    assert [(scan, tag) for scan, tag, _ in found] != [(expected(f), k) for k, f in enumerate(frames) if k != 2]


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Scanner bus_bits must be 64, 256 or 512, not 32"):
        Scanner(bus_bits=32, tag_bits=8)

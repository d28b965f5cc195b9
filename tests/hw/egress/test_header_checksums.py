"""The two checksums of frames of which one follows the other in every cycle, against sums over the bytes."""

import random

import pytest

import hw.egress.header_checksums
from hw.egress.header_checksums import STEPS, HeaderChecksums
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

OWN_IP = bytes([10, 0, 0, 100])
UDP_PORT = b"\x69\x53"


def complement(octets: bytes) -> bytes:
    total = sum(int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (0xFFFF - total).to_bytes(2, "big")


def expected(length: int, ip: bytes, udp: bytes) -> tuple[bytes, bytes]:
    ip_length, udp_length = (length - 14).to_bytes(2, "big"), (length - 34).to_bytes(2, "big")
    ip_sum = complement(b"\x45\0" + ip_length + b"\0\0\x40\0\x40\x11" + OWN_IP + ip)
    udp_sum = complement(OWN_IP + ip + b"\0\x11" + udp_length + UDP_PORT + udp + udp_length)
    return ip_sum, udp_sum if udp_sum != bytes(2) else b"\xff\xff"


def frames_of(seed: int, count: int = 60):
    """Length, address and port of frames; among them a UDP checksum of 0, and a sum with two carries."""
    rng = random.Random(seed)
    extremes = [bytes(4), b"\xff" * 4, b"\xff\xff\0\0"]
    frames = [
        (rng.randrange(64, 1519), rng.choice([*extremes, rng.randbytes(4)]), rng.randbytes(2)) for _ in range(count)
    ]
    length, ip, _ = frames[-1]
    ports = [port.to_bytes(2, "big") for port in range(65536)]
    zero = next(port for port in ports if expected(length, ip, port)[1] == b"\xff\xff")
    octets = OWN_IP + b"\xff\xff\xff\xff" + b"\0\x11" + UDP_PORT + 2 * (length - 34).to_bytes(2, "big")
    total = sum(int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2))
    twice = next(port for k, port in enumerate(ports) if (total + k & 0xFFFF) + (total + k >> 16) > 0xFFFF)
    return [
        *frames,
        (length, ip, zero),
        (length, b"\xff" * 4, twice),
        (64, bytes(4), bytes(2)),
        (64, bytes(4), bytes(2)),
    ]


def run(frames, checksums=HeaderChecksums):
    """Return the checksums of frames that start one cycle after the other."""
    dut, found = checksums(), []

    async def drive(ctx):
        ctx.set(dut.own_ip, int.from_bytes(OWN_IP, "little"))
        await ctx.tick()
        for cycle in range(len(frames) + STEPS):
            inside = lambda step: 0 <= cycle - step < len(frames)
            ctx.set(dut.steps, sum(inside(step) << step for step in range(STEPS)))
            if inside(0):
                ctx.set(dut.length, frames[cycle][0])
            if inside(1):
                _, ip, udp = frames[cycle - 1]
                ctx.set(dut.address.ip, int.from_bytes(ip, "little"))
                ctx.set(dut.address.udp, int.from_bytes(udp, "little"))
            await ctx.tick()
            if inside(STEPS - 1):
                found.append(tuple(ctx.get(value).to_bytes(2, "little") for value in (dut.ip, dut.udp)))

    Bench(dut).drive(drive)
    return found


def test_checksums_are_sums_over_the_bytes():
    frames = frames_of(1)
    assert run(frames) == [expected(*frame) for frame in frames]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("fold_carries(m, udp_total)", "(udp_total[:16] + udp_total[16:])[:16]"),
        ("~swapped(udp_sum) | is_zero.replicate(16)", "~swapped(udp_sum)"),
        ("m.d.sync += [ip_total.eq(rest + hosts)", "m.d.sync += [ip_total.eq(ip_part + hosts)"),
        ("self.length << 1", "self.length"),
    ],
)
def test_mutant_is_noticed(sound, wrong):
    frames = frames_of(1)
    broken = mutant(hw.egress.header_checksums, sound, wrong).HeaderChecksums
    assert run(frames, broken) != [expected(*frame) for frame in frames]

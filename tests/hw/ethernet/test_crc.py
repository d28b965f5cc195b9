"""The frame check sequence, against zlib's."""

import random
import zlib

import pytest

import hw.ethernet.crc
from hw.ethernet.crc import RESIDUE, Crc32
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, *range(60, 77), 127, 128, 129, 1514, 1518]


def words(frame):
    """Words of eight bytes with anything behind the end; of an empty frame one empty word."""
    return [
        (int.from_bytes(frame[at : at + 8].ljust(8, b"\xa5"), "little"), len(frame[at : at + 8]), at + 8 >= len(frame))
        for at in range(0, len(frame) or 1, 8)
    ]


def run(frames, *, stalls=0.0, make=Crc32):
    """What it says of each, and how many cycles behind its last word."""
    dut, rng, found, ends, begun = make(), random.Random(1), [], [], []

    async def feed(ctx):
        cycle = 0
        for word in [word for frame in frames for word in frame] + [None] * 10:
            while word and rng.random() < stalls:
                word_now, valid = (rng.getrandbits(64), rng.randrange(9), rng.randrange(2)), 0
                await step(ctx, word_now, valid, cycle)
                cycle += 1
            if word and word[2]:
                ends.append(cycle)
            await step(ctx, word or (0, 0, 1), bool(word), cycle)
            cycle += 1

    async def step(ctx, word, valid, cycle):
        for signal, value in zip((dut.data, dut.count, dut.last), word, strict=True):
            ctx.set(signal, value)
        ctx.set(dut.valid, valid)
        if ctx.get(dut.done):
            found.append(ctx.get(dut.fcs))
            begun.append(cycle)
        await ctx.tick()

    Bench(dut).drive(feed)
    return found, {then - end for end, then in zip(ends, begun, strict=True)}


@pytest.mark.parametrize("stalls", STALLS)
def test_fcs_is_zlibs_for_frames_back_to_back(stalls):
    frames = [random.Random(length).randbytes(length) for length in LENGTHS]
    found, latencies = run([words(frame) for frame in frames], stalls=stalls)
    assert found == [zlib.crc32(frame) for frame in frames]
    assert latencies == {Crc32.LATENCY}


def test_a_last_word_may_be_empty():
    frames = [random.Random(length).randbytes(length) for length in (8, 16, 64)]
    found, _ = run(
        [[*[(word, count, False) for word, count, _ in words(frame)], (0xDEAD, 0, True)] for frame in frames]
    )
    assert found == [zlib.crc32(frame) for frame in frames]


def test_a_frame_and_its_fcs_leave_the_residue():
    frames = [random.Random(length).randbytes(length) for length in LENGTHS]
    whole = [frame + zlib.crc32(frame).to_bytes(4, "little") for frame in frames]
    assert run([words(frame) for frame in whole])[0] == [RESIDUE] * len(frames)
    spoilt = [bytes([frame[0] ^ 1]) + frame[1:] for frame in whole]
    assert RESIDUE not in run([words(frame) for frame in spoilt])[0]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("0xEDB88320", "0xEDB88321"),
        ("Mux(folded.last, START, moved)", "moved"),
        ("BYTES - count)", "BYTES - count + 1)"),
        ("Mux(stage.count[3], all_of_them[row], chosen)", "chosen"),
        ("BYTES - bit // 8)", "BYTES - 1 - bit // 8)"),
    ],
)
def test_mutants_are_noticed(sound, wrong):
    frames = [random.Random(length).randbytes(length) for length in (60, 64, 65)]
    make = mutant(hw.ethernet.crc, sound, wrong).Crc32
    assert run([words(frame) for frame in frames], make=make)[0] != [zlib.crc32(frame) for frame in frames]

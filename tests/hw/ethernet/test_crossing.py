# amaranth: UnusedElaboratable=no
"""Frames between two clocks, of any ratio; and what becomes of them when one side is reset."""

import functools
import random

import pytest

import hw.ethernet.crossing
from hw.ethernet.crossing import FrameCrossing
from sim.bench.domains import Clocks, drain, feed
from sim.bench.mutant import mutant
from sim.bench.stream import to_words

RATIOS = [(5.0, 6.4), (6.4, 5.0), (2.56, 5.0), (5.0, 5.0)]


def noise(length, seed=0):
    return random.Random(1000 * seed + length).randbytes(length)


def run(
    frames,
    *,
    write=5.0,
    read=6.4,
    stalls=(0.0, 0.0),
    store_and_forward=False,
    depth=16,
    make=FrameCrossing,
    cycles=4000,
    resets=(),
    bus_bits=64,
):
    """What comes out: frames with their error, each with the reader's cycles of its first and its last word; but for
    frames of which the reader was reset. `resets`: domain, cycle of `write`, length."""
    dut = make(bus_bits=bus_bits, depth=depth, store_and_forward=store_and_forward)
    clocks, found = Clocks(dut, {"write": write, "read": read}), []
    now = [0]

    async def count(ctx):
        while True:
            await ctx.tick("read")
            now[0] += 1

    words = [to_words(frame, bus_bits) for frame in frames]
    clocks.process(count)
    clocks.process(functools.partial(feed, target=dut.i, frames=words, domain="write", stalls=stalls[0], seed=1))
    clocks.process(
        functools.partial(drain, target=dut.o, found=found, domain="read", stalls=stalls[1], seed=2, at=lambda: now[0])
    )

    async def watch(ctx):
        for cycle in range(cycles):
            await ctx.tick("write")
            for domain, reset in clocks.domains.items():
                ctx.set(
                    reset.rst, int(any(which == domain and at <= cycle < at + length for which, at, length in resets))
                )
            if not resets and sum(word is not None and word.last for word, _ in found) == len(frames):
                break

    clocks.run(watch)
    out, frame, begun = [], b"", None
    for word, at in found:
        if word is None:
            frame, begun = b"", None
            continue
        begun = at if begun is None else begun
        frame += word.data.to_bytes(bus_bits // 8, "little")[: word.count]
        if word.last:
            out.append((frame, bool(word.error), begun, at))
            frame, begun = b"", None
    return out


@pytest.mark.parametrize("store_and_forward", [False, True])
@pytest.mark.parametrize("stalls", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.3, 0.3)])
@pytest.mark.parametrize("write, read", RATIOS)
def test_frames_come_out_as_they_went_in(write, read, stalls, store_and_forward):
    frames = [noise(length) for length in (1, 8, 9, 16, 17, 60, 61, 100, 3, 3, 3, 3, 3, 3, 3, 120, 1)]
    out = run(frames, write=write, read=read, stalls=stalls, store_and_forward=store_and_forward)
    assert [frame for frame, *_ in out] == frames and not any(error for _, error, *_ in out)


@pytest.mark.parametrize("stalls", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("write, read", RATIOS)
def test_a_whole_frame_comes_without_a_pause(write, read, stalls):
    frames = [noise(length) for length in (1, 8, 9, 64, 100, 120, 60, 8, 8)]
    out = run(frames, write=write, read=read, stalls=(stalls, 0.0), store_and_forward=True)
    assert [frame for frame, *_ in out] == frames
    assert [last - first + 1 for _, _, first, last in out] == [-(-len(frame) // 8) for frame in frames]


def test_a_frame_that_is_not_to_be_whole_comes_before_it_ends():
    ((frame, _, first, last),) = run([noise(400)], stalls=(0.5, 0.0))
    assert last - first + 1 > 50


@pytest.mark.parametrize("store_and_forward", [False, True])
@pytest.mark.parametrize("write, read", RATIOS)
def test_a_word_is_offered_from_the_second_edge_on(write, read, store_and_forward):
    dut = FrameCrossing(bus_bits=64, depth=16, store_and_forward=store_and_forward)

    async def measure(ctx):
        await ctx.tick("write").repeat(20)
        ctx.set(dut.i.payload, {"data": 1, "count": 1, "last": 1, "error": 0})
        ctx.set(dut.i.valid, 1)
        await ctx.tick("write")
        ctx.set(dut.i.valid, 0)
        if store_and_forward:
            await ctx.tick("write")
        for _ in range(2):
            assert not ctx.get(dut.o.valid)
            await ctx.tick("read")
        assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload.count) == 1

    Clocks(dut, {"write": write, "read": read}).run(measure)


@pytest.mark.parametrize("domain", ["write", "read"])
@pytest.mark.parametrize("store_and_forward", [False, True])
@pytest.mark.parametrize("stalls", [(0.0, 0.0), (0.4, 0.1), (0.1, 0.5)])
def test_a_reset_of_either_side_makes_no_frame_whole_that_is_not(domain, store_and_forward, stalls):
    """Frames that are cut have an error; others are lost whole; later ones come."""
    frames = [noise(40 + k % 50, k) for k in range(150)]
    resets = [(domain, at, 6 + at % 5) for at in range(50, 500, 41)]
    out = run(frames, stalls=stalls, store_and_forward=store_and_forward, resets=resets, cycles=3500)
    good = [frame for frame, error, *_ in out if not error]
    assert set(good) <= set(frames) and [frames.index(frame) for frame in good] == sorted(
        frames.index(frame) for frame in good
    )
    assert good[-20:] == frames[-20:] and len(good) > 30
    assert len(good) < len(frames)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong", "options"),
    [
        ("may_begin.eq(frames.r_rdy)", "may_begin.eq(1)", {"store_and_forward": True}),
        ("inside.eq(0), cut.eq(begun)", "inside.eq(0)", {}),
        ("skips.eq(inside & ~begun)", "skips.eq(0)", {}),
    ],
)
def test_mutants_are_noticed(sound, wrong, options):
    make = mutant(hw.ethernet.crossing, sound, wrong).FrameCrossing
    frames = [noise(40 + k % 50, k) for k in range(150)]
    if options:
        out = run([noise(100)], stalls=(0.5, 0.0), make=make, **options)
        assert out[0][3] - out[0][2] + 1 > 13
        return
    seen = set()
    for domain in ("write", "read"):
        out = run(
            frames,
            stalls=(0.1, 0.5),
            make=make,
            cycles=3500,
            resets=[(domain, at, 6 + at % 5) for at in range(50, 500, 41)],
        )
        seen.add({frame for frame, error, *_ in out if not error} <= set(frames))
    assert False in seen


@pytest.mark.parametrize("depth", [0, 2, 12])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"FrameCrossing depth must be a power of two of at least 4, not {depth}"):
        FrameCrossing(bus_bits=64, depth=depth)

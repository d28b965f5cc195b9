# amaranth: UnusedElaboratable=no
"""A frame without room is always reported: one end for each frame, in order, with an error if it is incomplete."""

import random

import pytest

import hw.ethernet.overflow
from hw.ethernet.overflow import OWED_MAX, Overflow
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words, to_words


def noise(length, seed=0):
    return random.Random(1000 * seed + length).randbytes(length)


def damaged(k):
    return k % 7 == 3


def run(frames, *, make=Overflow, stalls=0.0, start=0, source_stalls=0.0):
    """Frames that left, whether with an error, source, sink, and `lost`, the frames that the law gives up: those of
    which a word came while what stood before it was not taken, or which began before each one that came earlier had
    been ended on the other side."""
    dut = make(bus_bits=64)
    bench = Bench(dut)
    lost = set()
    source = bench.source(
        dut.i,
        [word for k, frame in enumerate(frames) for word in to_words(frame, 64, error=damaged(k))],
        stalls=source_stalls,
    )
    sink = bench.sink(dut.o, stalls=stalls, start=start)

    async def follow(ctx):
        came = left = 0
        first = True
        async for _, _, comes, comes_last, offered, taken, offered_last in ctx.tick().sample(
            dut.i.valid, dut.i.payload.last, dut.o.valid, dut.o.ready, dut.o.payload.last
        ):
            if comes and (offered and not taken or first and came > left + (offered and offered_last)):
                lost.add(came)
            if comes:
                first = bool(comes_last)
            came, left = came + (comes and comes_last), left + (offered and taken and offered_last)

    bench.process(follow)
    bench.run(quiet=400 if stalls else 30)
    ends = [word for word in sink.items if word.last]
    assert all((word.count == 0) == (k in lost) for k, word in enumerate(ends))
    return from_words(sink.items, 64), [bool(word.error) for word in ends], source, sink, lost


def judge(frames, found, errors, lost):
    """Lost frames are beginnings of what came, and end with an error and `count` 0. Damaged frames keep their error;
    the others are what came."""
    assert len(found) == len(frames)
    assert [k for k, error in enumerate(errors) if error] == [k for k in range(len(frames)) if damaged(k) or k in lost]
    for k, (frame, out) in enumerate(zip(frames, found, strict=True)):
        assert out == frame[: len(out)] if k in lost else out == frame


def test_with_room_nothing_is_touched_and_each_word_comes_1_cycle_later():
    frames = [noise(length) for length in (1, 8, 9, 60, 100, 3)]
    found, errors, source, sink, _ = run(frames)
    assert found == frames and errors == [k == 3 for k in range(6)]
    assert sink.times == [time + 1 for time in source.times]


def mixed():
    rng = random.Random(5)
    return [noise(rng.choice([1, 8, 9, 20, 60, 100]), k) for k in range(120)]


@pytest.mark.parametrize("source_stalls", [0.0, 0.4])
@pytest.mark.parametrize("stalls", [0.0, 0.1, 0.5, 0.9])
def test_only_frames_without_room_or_before_the_report_of_a_loss_are_lost(stalls, source_stalls):
    frames = mixed()
    found, errors, _, _, lost = run(frames, stalls=stalls, source_stalls=source_stalls)
    judge(frames, found, errors, lost)
    good = {k for k in range(len(frames)) if not damaged(k)}
    assert bool(lost & good) == bool(stalls)
    if source_stalls and stalls <= 0.5:
        assert good - lost


def test_many_ends_are_kept_while_there_is_no_room_and_no_more_than_that():
    found, errors, *_ = run([noise(8)] * 200, start=300)
    assert len(found) == 200 and errors[1:] == [True] * 199
    found, errors, *_ = run([noise(8)] * 300, start=400)
    assert len(found) == 1 + OWED_MAX


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("losing | first & (ended | owes)", "losing"),
        ("ended | owes", "owes"),
        ("ended | owes", "ended"),
        ("losing | first", "first"),
        ("losing | first & (ended | owes)", "losing | first"),
        ("~shut | owes", "~shut"),
        ("shut | ~room", "shut"),
        ("shut | ~room", "~room"),
        ("room & owes, ~ended", "room & owes, 1"),
        ("ended & (owed != OWED_MAX)", "0"),
        ("Mux(ended, 1, OWED_MAX)", "1"),
        (
            "self.o.payload.count.eq(0), self.o.payload.last.eq(1), self.o.payload.error.eq(1)",
            "self.o.payload.last.eq(1)",
        ),
        ("self.o.payload.count.eq(0),", "self.o.payload.count.eq(1),"),
        ("room.eq(~self.o.valid | self.o.ready)", "room.eq(~self.o.valid)"),
        ("losing.eq(loses & ~self.i.payload.last)", "losing.eq(losing | loses)"),
    ],
)
def test_mutants_are_noticed(sound, wrong):
    frames = mixed()
    with pytest.raises((AssertionError, TimeoutError)):
        found, errors, _, _, lost = run(
            frames, stalls=0.5, source_stalls=0.4, make=mutant(hw.ethernet.overflow, sound, wrong).Overflow
        )
        judge(frames, found, errors, lost)


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Overflow bus_bits must be 64, 256 or 512, not 8"):
        Overflow(bus_bits=8)

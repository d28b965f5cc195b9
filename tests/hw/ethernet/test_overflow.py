# amaranth: UnusedElaboratable=no
"""A frame without room is told, never forgotten: one end for each frame, in order, with an error if it is not whole."""

import random

import pytest

import hw.ethernet.overflow
from hw.ethernet.overflow import OWED_MAX, Overflow
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words, to_words


def noise(length, seed=0):
    return random.Random(1000 * seed + length).randbytes(length)


def run(frames, *, make=Overflow, stalls=0.0, start=0, source_stalls=0.0):
    dut = make(bus_bits=64)
    bench = Bench(dut)
    source = bench.source(dut.i, [word for k, frame in enumerate(frames) for word in to_words(frame, 64, error=k % 7 == 3)], stalls=source_stalls)
    sink = bench.sink(dut.o, stalls=stalls, start=start)
    bench.run(quiet=400 if stalls else 30)
    return from_words(sink.items, 64), [bool(word.error) for word in sink.items if word.last], source, sink


def judge(frames, found, errors):
    """What is not whole has an error and is a beginning of what came, but for its last word; what is whole is what came."""
    assert len(found) == len(frames)
    for k, (frame, out, error) in enumerate(zip(frames, found, errors, strict=True)):
        if error and k % 7 != 3:
            assert out[:-1] == frame[:len(out) - 1]
        elif not error:
            assert out == frame and k % 7 != 3


def test_with_room_nothing_is_touched_and_each_word_comes_1_cycle_later():
    frames = [noise(length) for length in (1, 8, 9, 60, 100, 3)]
    found, errors, source, sink = run(frames)
    assert found == frames and errors == [k == 3 for k in range(6)]
    assert sink.times == [time + 1 for time in source.times]


@pytest.mark.parametrize("source_stalls", [0.0, 0.4])
@pytest.mark.parametrize("stalls", [0.1, 0.5, 0.9])
def test_without_room_each_frame_still_ends_once(stalls, source_stalls):
    rng = random.Random(5)
    frames = [noise(rng.choice([1, 8, 9, 20, 60, 100]), k) for k in range(120)]
    found, errors, _, _ = run(frames, stalls=stalls, source_stalls=source_stalls)
    judge(frames, found, errors)
    assert True in errors and (False in errors or not source_stalls or stalls > 0.5)


def test_many_ends_are_kept_while_there_is_no_room_and_no_more_than_that():
    found, errors, _, _ = run([noise(8)] * 200, start=300)
    assert len(found) == 200 and errors[1:] == [True] * 199
    found, errors, _, _ = run([noise(8)] * 300, start=400)
    assert len(found) == 1 + OWED_MAX


@pytest.mark.parametrize(("sound", "wrong"), [
    ("| first & (owed != 0)", ""), ("losing | ~room", "~room"), ("with m.If(adds ^ tells)", "with m.If(tells)"),
    ("self.o.payload.count.eq(1), self.o.payload.last.eq(1), self.o.payload.error.eq(1)", "self.o.payload.last.eq(1)")])
def test_slips_are_noticed(sound, wrong):
    rng = random.Random(5)
    frames = [noise(rng.choice([1, 8, 9, 20, 60, 100]), k) for k in range(120)]
    with pytest.raises((AssertionError, TimeoutError)):
        judge(frames, *run(frames, stalls=0.5, make=mutant(hw.ethernet.overflow, sound, wrong).Overflow)[:2])


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Overflow bus_bits must be 64, 256 or 512, not 8"):
        Overflow(bus_bits=8)

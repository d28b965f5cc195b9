# amaranth: UnusedElaboratable=no
"""Words of 64 bits to words of the bus and back: every length, the order of bytes, and no cycle lost."""

import random

import pytest

import hw.ethernet.width
from hw.ethernet.width import Narrow, Widen
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words

BUSES = [64, 256, 512]
FRAMES = [random.Random(length).randbytes(length) for length in (*range(1, 34), 63, 64, 65, 66, 127, 128, 129)]


def run(make, from_bits, to_bits, frames, *, stalls, errors=()):
    dut = make(bus_bits=max(from_bits, to_bits))
    bench = Bench(dut, stalls=stalls)
    source = bench.source(
        dut.i, [word for k, frame in enumerate(frames) for word in to_words(frame, from_bits, error=k in errors)]
    )
    sink = bench.sink(dut.o)
    bench.run()
    assert all(word.count for word in sink.items)
    assert [bool(word.error) for word in sink.items if word.last] == [k in errors for k in range(len(frames))]
    return from_words(sink.items, to_bits), source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_widened_frames_are_the_same(bus_bits, stalls):
    found, source, sink = run(Widen, 64, bus_bits, FRAMES, stalls=stalls, errors={3, 9})
    assert found == FRAMES


@pytest.mark.parametrize("bus_bits", BUSES)
def test_a_wide_word_comes_1_cycle_behind_its_last_piece(bus_bits):
    _, source, sink = run(Widen, 64, bus_bits, [FRAMES[-1]], stalls=0)
    pieces = bus_bits // 64
    assert sink.times == [
        source.times[min(pieces * (k + 1), len(source.times)) - 1] + 1 for k in range(len(sink.times))
    ]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_narrowed_frames_are_the_same(bus_bits, stalls):
    assert run(Narrow, bus_bits, 64, FRAMES, stalls=stalls, errors={3, 9})[0] == FRAMES


@pytest.mark.parametrize("bus_bits", BUSES)
def test_narrow_words_follow_each_other_without_a_pause(bus_bits):
    _, source, sink = run(Narrow, bus_bits, 64, FRAMES, stalls=0)
    assert sink.times == list(range(sink.times[0], sink.times[0] + len(sink.times)))
    assert sink.times[0] == source.times[0] + 1


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong"),
    [
        ("Widen", "Mux(is_whole, 0, index + 1)", "index + 1"),
        ("Widen", "BYTES * index + i.count", "i.count"),
        ("Narrow", "word.count <= BYTES", "word.count < BYTES"),
        ("Narrow", "word.data >> 8 * BYTES", "word.data"),
    ],
)
def test_mutants_are_noticed(part, sound, wrong):
    from_bits, to_bits = (64, 256) if part == "Widen" else (256, 64)
    with pytest.raises(AssertionError):
        assert (
            run(getattr(mutant(hw.ethernet.width, sound, wrong), part), from_bits, to_bits, FRAMES, stalls=0)[0]
            == FRAMES
        )


@pytest.mark.parametrize("part", [Narrow, Widen])
def test_bus_bits_wrong(part):
    with pytest.raises(ValueError, match=f"{part.__name__} bus_bits must be 64, 256 or 512, not 128"):
        part(bus_bits=128)

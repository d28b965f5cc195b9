# amaranth: UnusedElaboratable=no
"""Packets leave whole, without a gap, in order, with their meta; a packet may fill the memory."""

import random

import pytest

import hw.stream.fifo
import hw.stream.store_and_forward
from hw.interface.reply import ReplyRoute
from hw.stream.store_and_forward import StoreAndForward
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words

SHORTEST, LONGEST = 64 + 64 + 8, 64 + 1408 + 8
MEMORY_BYTES = 2048


def items(frames, bus_bits):
    return [
        word
        for k, frame in enumerate(frames)
        for word in to_words(
            frame,
            bus_bits,
            meta={"port": k % 16, "length": len(frame), "address": {"mac": k, "ip": len(frame), "udp": 7 * k}},
        )
    ]


def frames_of(sizes):
    rng = random.Random(len(sizes))
    return [rng.randbytes(size) for size in sizes]


MIXED = [SHORTEST] * 20 + [LONGEST, SHORTEST, LONGEST, LONGEST, 1416, *range(SHORTEST, 400, 32)]


def check(part=StoreAndForward, *, bus_bits=64, memory_bytes=MEMORY_BYTES, stalls=0.0, pauses=0.0, sizes=tuple(MIXED)):
    """pauses: of what comes; stalls: of what leaves."""
    bench = Bench(dut := part(bus_bits=bus_bits, depth=memory_bytes * 8 // bus_bits, meta=ReplyRoute), stalls=stalls)
    frames = frames_of(sizes)
    bench.source(dut.i, items(frames, bus_bits), stalls=pauses)
    sink = bench.sink(dut.o)
    (busy,) = bench.run(read=[dut.busy], limit=60_000)
    assert not busy
    assert from_words(sink.items, bus_bits) == frames
    beside = [
        (k % 16, len(frame), k, len(frame), 7 * k) for k, frame in enumerate(frames) for _ in to_words(frame, bus_bits)
    ]
    assert [
        (meta.port, meta.length, meta.address.mac, meta.address.ip, meta.address.udp)
        for meta in (item.meta for item in sink.items)
    ] == beside
    return sink


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
@pytest.mark.parametrize("pauses", [0.0, 0.9])
@pytest.mark.parametrize("stalls", STALLS)
def test_frames_stay_whole_and_in_order(bus_bits, pauses, stalls):
    check(bus_bits=bus_bits, pauses=pauses, stalls=stalls)


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_frame_that_has_begun_has_no_gap(bus_bits):
    sink = check(bus_bits=bus_bits, pauses=0.8)
    starts = [k for k in range(len(sink.items)) if k == 0 or sink.items[k - 1].last]
    for start, end in zip(starts, [*starts[1:], len(sink.items)], strict=True):
        assert sink.times[end - 1] - sink.times[start] == end - 1 - start


def test_a_word_a_cycle_from_frame_to_frame():
    sink = check(sizes=(LONGEST,) * 6)
    assert sink.times[-1] - sink.times[0] == len(sink.times) - 1


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_frame_may_fill_the_memory(bus_bits):
    check(bus_bits=bus_bits, sizes=(MEMORY_BYTES,) * 3)


def check_last(monkeypatch, part=StoreAndForward, *, bus_bits=64):
    """Flip a copy of `last` in each word that waits. Each frame ends where it ended, with its own meta."""
    memories = keep_memories(monkeypatch, hw.stream.fifo)
    bench = Bench(dut := part(bus_bits=bus_bits, depth=128, meta=ReplyRoute))
    frames = frames_of([136, 200, 136, 144])
    bench.source(dut.i, items(frames, bus_bits))
    sink = bench.sink(dut.o, start=120)
    at_last = bus_bits + (bus_bits // 8).bit_length()

    async def flip_all(ctx):
        await ctx.tick().repeat(100)
        for row in range(sum(map(len, frames)) * 8 // bus_bits):
            flip(ctx, memories[0], row, at_last + row % 3)

    bench.simulator.add_testbench(flip_all, background=True)
    bench.run(quiet=150)
    assert from_words(sink.items, bus_bits) == frames
    assert [item.meta.length for item in sink.items if item.last] == [len(frame) for frame in frames]


def test_a_bit_error_moves_no_frames_end(monkeypatch):
    check_last(monkeypatch)


@pytest.mark.mutant
def test_a_mutant_without_a_majority_is_noticed(monkeypatch):
    broken = mutant(hw.stream.store_and_forward, "majority(words.o.payload.last)", "words.o.payload.last[1]")
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check_last(monkeypatch, broken.StoreAndForward)


MUTANTS = {
    "frames begin at once": ("words.o.valid & (complete != 0)", "words.o.valid"),
    "what leaves is not counted": ("complete + enters - leaves", "complete | enters"),
    "meta of each word": ("words.i.valid & first)", "words.i.valid)"),
    "meta is not taken away": ("metas.o.ready.eq(leaves)", "metas.o.ready.eq(0)"),
    "half the memory": ("depth=self.depth)", "depth=self.depth // 2)"),
}


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_mutants_are_noticed(sound, wrong):
    broken = mutant(hw.stream.store_and_forward, sound, wrong).StoreAndForward
    with pytest.raises((AssertionError, TimeoutError)):
        sink = check(broken, pauses=0.8)
        starts = [k for k in range(len(sink.items)) if k == 0 or sink.items[k - 1].last]
        assert all(
            sink.times[end - 1] - sink.times[start] == end - 1 - start
            for start, end in zip(starts, [*starts[1:], len(sink.items)], strict=True)
        )


def test_depth_wrong():
    with pytest.raises(ValueError, match="StoreAndForward depth must be at least 2, not 1"):
        StoreAndForward(bus_bits=64, depth=1, meta=ReplyRoute)

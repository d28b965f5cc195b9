# amaranth: UnusedElaboratable=no
"""Packets leave in order, whole or not at all, and as often as the consumer asks."""

import random

import pytest
from amaranth.hdl import Value
from amaranth.lib.memory import Memory

import hw.stream.cut_through_queue
from hw.stream.cut_through_queue import CutThroughQueue
from hw.stream.stored_word import StoredWord
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words


def run(
    frames, *, depth=64, packets=16, stalls=0, repeats=None, start=0, bus_bits=64, bypass=False, queue=CutThroughQueue
):
    """Send frames with their index as meta; frame k is shown `repeats[k]` times. Return bench, source and sink."""
    dut = queue(bus_bits=bus_bits, depth=depth, meta=8, packets=packets, bypass=bypass)
    bench = Bench(dut, stalls=stalls)
    source = send(bench, frames, bus_bits)
    sink = bench.sink(dut.o, start=start)

    async def repeat(ctx):
        shown = dict(enumerate(repeats or [1] * len(frames)))
        async for _, _, valid, ready, word in ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.payload):
            if valid and ready and word.last:
                shown[word.meta] -= 1
            if valid:
                ctx.set(dut.repeat, shown[word.meta] > 1)

    bench.process(repeat)
    assert bench.run(read=[dut.busy]) == [0]
    return bench, source, sink


def send(bench, frames, bus_bits):
    """Return the source of the frames, whose index is the meta."""
    words = [
        (len(frame), word) for k, frame in enumerate(frames) for word in to_words(frame, bus_bits, first=True, meta=k)
    ]
    return bench.source(
        bench.dut.i, [word for _, word in words], beside=lambda item: [(bench.dut.length, words[item][0])]
    )


def shown(sink, bus_bits=64):
    """Return the frames that came out, each with the meta of all of its words."""
    frames = from_words(sink.items, bus_bits)
    metas, at = [], 0
    for frame in frames:
        count = -(-len(frame) * 8 // bus_bits)
        [meta] = {item.meta for item in sink.items[at : at + count]}
        metas.append(meta)
        at += count
    return list(zip(metas, frames, strict=True))


def noise(sizes, seed=0):
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes]


BYPASS = pytest.mark.parametrize("bypass", [False, True])


@BYPASS
@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_frames_leave_in_order_with_their_meta(bus_bits, stalls, bypass):
    frames = noise((60, 61, 63, 64, 65, 100, 127, 128))
    bench, _, sink = run(frames, bus_bits=bus_bits, stalls=stalls, depth=128, bypass=bypass)
    assert shown(sink, bus_bits) == list(enumerate(frames))
    assert bench.strobes == {"stat_drop": 0}


def check_repeats(*, stalls=0, bypass=False, queue=CutThroughQueue):
    frames, repeats = noise((24, 60, 64, 25, 100, 60)), [3, 1, 2, 4, 1, 3]
    _, _, sink = run(frames, repeats=repeats, stalls=stalls, bypass=bypass, queue=queue)
    assert shown(sink) == [(k, frames[k]) for k, times in enumerate(repeats) for _ in range(times)]


@BYPASS
@pytest.mark.parametrize("stalls", STALLS)
def test_repeat_shows_the_same_frame_once_more(stalls, bypass):
    check_repeats(stalls=stalls, bypass=bypass)


def check_last(monkeypatch, module=hw.stream.cut_through_queue) -> None:
    """Flip each copy of `last` in each word of a frame that waits, between two others."""
    layout, words = StoredWord(64), 5
    for word in range(2, words):
        for bit in range(layout["last"].offset, layout["last"].offset + 3):
            memories = recorded(monkeypatch, module)
            dut = module.CutThroughQueue(bus_bits=64, depth=64, meta=8)
            bench, frames = Bench(dut), noise([8 * words] * 3, word)
            send(bench, frames, 64)
            sink = bench.sink(dut.o, start=40)
            bench.simulator.add_testbench(flipping(memories, words + word, bit), background=True)
            bench.run()
            assert shown(sink) == list(enumerate(frames)), (word, bit)


def recorded(monkeypatch, module) -> list[Memory]:
    """Return a list to which the memories of a module are added."""
    memories = []
    monkeypatch.setattr(module, "Memory", lambda **options: memories.append(Memory(**options)) or memories[-1])
    return memories


def flipping(memories, row: int, bit: int):
    async def flip(ctx):
        await ctx.tick().repeat(30)
        stored = Value.cast(memories[0].data[row])
        ctx.set(stored, ctx.get(stored) ^ 1 << bit)

    return flip


def test_a_bit_error_moves_no_frames_end(monkeypatch):
    check_last(monkeypatch)


@pytest.mark.mutant
def test_a_mutant_without_a_majority_is_noticed(monkeypatch):
    broken = mutant(hw.stream.cut_through_queue, "majority(reader.data.last)", "reader.data.last[1]")
    with pytest.raises((AssertionError, ValueError)):
        check_last(monkeypatch, broken)


def test_frame_that_does_not_fit_is_dropped_whole_and_counted():
    frames = noise((256, 200, 64, 8, 56, 8))  # 32, 25, 8, 1, 7, 1 words into 64
    bench, _, sink = run(frames, start=100)
    assert shown(sink) == [(k, frames[k]) for k in (0, 1, 3)] + [(5, frames[5])]
    assert bench.strobes == {"stat_drop": 2}


def check_filled(queue=CutThroughQueue):
    frames = noise((256, 256, 8))
    bench, _, sink = run(frames, start=100, queue=queue)
    assert shown(sink) == [(0, frames[0]), (1, frames[1])]
    assert bench.strobes == {"stat_drop": 1}


def test_memory_can_be_filled_to_the_last_word():
    check_filled()


def check_room(bus_bits, queue=CutThroughQueue):
    """Frames that are no whole number of words, each into what those before it left: in words, rounded up, to the last
    one and not a byte more."""
    size, free, kept, lengths = bus_bits // 8, 16, [], []
    for words, partial in (
        (5, 0),
        (12, 1),
        (11, 1),
        (1, size - 1),
        (5, 1),
        (3, 1),
        (1, 1),
        (0, 7),
        (0, 1),
        (1, 1),
        (1, 0),
        (0, 7),
    ):
        lengths.append(words * size + partial)
        if words + (partial > 0) <= free:
            kept.append(len(lengths) - 1)
            free -= words + (partial > 0)
    assert free == 0 and len(kept) < len(lengths) - 3
    frames = noise(lengths)
    bench, _, sink = run(frames, depth=16, start=100, bus_bits=bus_bits, queue=queue)
    assert shown(sink, bus_bits) == [(k, frames[k]) for k in kept]
    assert bench.strobes == {"stat_drop": len(frames) - len(kept)}


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_frame_fits_where_there_is_a_word_for_its_last_bytes_too(bus_bits):
    check_room(bus_bits)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("Const(0, shift), room", "Const(-1, shift), room"),
        ("room) >= self.length", "room) > self.length"),
        ("room) >= self.length", "room)[shift:] >= self.length >> shift"),
        ("Mux(stores, room_used, room_kept)", "Mux(stores, room_kept, room_used)"),
        ("Mux(stores, room_used, room_kept)", "room_kept"),
    ],
)
def test_a_mutant_in_rounding_is_noticed(sound, wrong):
    broken = mutant(hw.stream.cut_through_queue, sound, wrong).CutThroughQueue
    with pytest.raises((AssertionError, TimeoutError)):
        check_room(64, broken)
        check_filled(broken)


def test_frame_without_room_for_its_meta_is_dropped_whole_and_counted():
    frames = noise([16] * 8)
    bench, _, sink = run(frames, packets=5, start=100)
    assert shown(sink) == [(k, frames[k]) for k in range(5)]
    assert bench.strobes == {"stat_drop": 3}


@pytest.mark.parametrize("depth", [1 << 13, 1 << 15, 1 << 16, 1 << 17])
def test_a_large_memory_takes_what_comes_when_it_is_empty(depth):
    frames = noise((60, 1514, 64))
    bench, _, sink = run(frames, depth=depth)
    assert shown(sink) == list(enumerate(frames))
    assert bench.strobes == {"stat_drop": 0}


def test_memory_is_given_back_for_ever():
    frames = noise([40, 64, 8] * 12)
    bench, _, sink = run(frames, depth=16)
    assert shown(sink) == list(enumerate(frames))
    assert bench.strobes == {"stat_drop": 0}


@BYPASS
def test_drops_depend_on_nothing_but_room(bypass):
    """Random frames into a slow reader: those that come out are those that were not counted, each whole."""
    check_drops(bypass=bypass)


def check_drops(*, bypass=False, queue=CutThroughQueue):
    frames = noise([8 + 7 * k % 60 for k in range(60)], 7)
    dut = queue(bus_bits=64, depth=16, meta=8, bypass=bypass)
    bench = Bench(dut)
    send(bench, frames, 64)
    sink = bench.sink(dut.o, stalls=0.6)
    bench.run()
    kept = shown(sink)
    assert [frame for _, frame in kept] == [frames[k] for k, _ in kept]
    assert [k for k, _ in kept] == sorted({k for k, _ in kept})
    assert bench.strobes["stat_drop"] == len(frames) - len(kept)
    assert 10 < len(kept) < len(frames)


def test_word_can_be_read_3_cycles_after_it_was_written():
    _, source, sink = run(noise([200, 64]))
    assert sink.times == [put + 3 for put in source.times]


def check_bypass(queue=CutThroughQueue):
    """A word passes an empty queue, and the words behind one that waited leave without a gap."""
    _, source, sink = run(noise([200, 64]), bypass=True, queue=queue)
    assert sink.times == [put + 1 for put in source.times]
    for start in range(12):
        _, _, sink = run(noise([200, 64]), start=start, bypass=True, queue=queue)
        assert sink.times == list(range(sink.times[0], sink.times[0] + 33)), start


def test_a_word_that_no_other_precedes_can_be_read_1_cycle_after_it_was_written_with_a_bypass():
    check_bypass()


def check_dropped_beside_an_empty_memory(queue=CutThroughQueue):
    """The second frame comes when all words of the first are read, and their memory is not free yet."""
    frames = noise([72, 64, 16])
    bench, _, sink = run(frames, depth=16, bypass=True, queue=queue)
    assert shown(sink) == [(0, frames[0]), (2, frames[2])]
    assert bench.strobes == {"stat_drop": 1}


def test_a_dropped_word_does_not_pass_an_empty_memory():
    check_dropped_beside_an_empty_memory()


def check_repeats_beside_the_next_frame(queue=CutThroughQueue):
    """The consumer repeats a frame when a word of the next one has just come, or later."""
    frames = noise([24, 64])
    for start in range(8):
        _, _, sink = run(frames, repeats=[2, 1], start=start, bypass=True, queue=queue)
        assert shown(sink) == [(0, frames[0]), (0, frames[0]), (1, frames[1])], start


def test_a_frame_that_is_repeated_leaves_before_a_word_that_has_just_come():
    check_repeats_beside_the_next_frame()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("alone | stores & empty", "alone | self.i.valid & empty"),
        ("alone | stores & empty", "alone | stores"),
        ("alone | stores & empty", "stores & empty"),
        ("free.eq(~filled & moves)", "free.eq(moves)"),
        ("with m.If(~filled):", "with m.If(read == write):"),
        ("Mux(alone, latest, word_of(self.i.payload))", "word_of(self.i.payload)"),
        ("Mux(empty, free & stores, reads)", "~empty & reads"),
        ("reads & ~empty & ~(free & alone)", "reads & ~empty"),
        ("held.eq(filled | passes)", "held.eq(filled)"),
        ("Mux(free, alone, empty)", "empty"),
        ("Mux(free, alone, empty)", "1"),
        ("held.eq(0), alone.eq(0)", "held.eq(0)"),
    ],
)
def test_a_mutant_of_the_bypass_is_noticed(sound, wrong):
    broken = mutant(hw.stream.cut_through_queue, sound, wrong).CutThroughQueue
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check_bypass(broken)
        check_repeats(stalls=0.5, bypass=True, queue=broken)
        check_drops(bypass=True, queue=broken)
        check_dropped_beside_an_empty_memory(broken)
        check_repeats_beside_the_next_frame(broken)


@BYPASS
def test_frame_begins_again_3_cycles_later(bypass):
    _, _, sink = run(noise([64]), repeats=[2], bypass=bypass)
    assert sink.times[8] - sink.times[7] == 3
    assert sink.times[8:] == list(range(sink.times[8], sink.times[8] + 8))


@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"CutThroughQueue depth must be a power of two above 1, not {depth}"):
        CutThroughQueue(bus_bits=64, depth=depth, meta=8)


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="CutThroughQueue bus_bits must be 64, 256 or 512, not 8"):
        CutThroughQueue(bus_bits=8, depth=64, meta=8)

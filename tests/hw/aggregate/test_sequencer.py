# amaranth: UnusedElaboratable=no
"""Operations into beats: in order, without gaps, and never too close on one word."""

import itertools
import random

import pytest
from amaranth.hdl import Value

from hw.aggregate.sequencer import LOOP_MIN, Beat, Sequencer
from iswitch.config import Config
from iswitch.wire import Operation
from sim.bench.stream import STALLS, Bench, to_words

CONFIG = Config(ports=2, bus_bits=64, members=4, jobs=2, window=2, elements=16, queue_bytes=4096)
ROOM = 4 * CONFIG.segment_words


def work(operation, slot, elements, *, emit=0, **fields):
    contributes = operation == Operation.CONTRIBUTE
    return {
        "operation": operation,
        "slot": slot,
        "include": contributes,
        "write": contributes,
        "emit": emit,
        "result": {"length": 4 * elements, "seq": slot, "numeric": 1},
    } | fields


def payload(elements, seed):
    return random.Random(seed).randbytes(4 * elements)


def run(works, *, loop=9, stalls=0, room=ROOM, results_start=0, payload_start=0, limit=20000, everything=False):
    """Returns the beats as (cycle, beat), contributions' source, claims as (cycle, words), results' sink."""
    dut = Sequencer(CONFIG, loop=loop)
    bench = Bench(dut, stalls=stalls, inputs=[(dut.room, room)])
    sent = bench.source(dut.works, works)
    payloads = [
        payload(one["result"]["length"] // 4, k) if one["operation"] == Operation.CONTRIBUTE else b""
        for k, one in enumerate(works)
    ]
    words = bench.source(
        dut.contributions, [word for one in payloads for word in to_words(one, 64)], start=payload_start
    )
    results = bench.sink(dut.results, start=results_start)
    beats, claims, cycle = [], [], -1

    async def record(ctx):
        nonlocal cycle
        layout = Beat(CONFIG)
        async for _, _, bits, claimed in ctx.tick().sample(Value.cast(dut.beat), dut.claimed):
            cycle += 1
            if (beat := layout.from_bits(bits)).valid:
                beats.append((cycle, beat))
            if claimed:
                claims.append((cycle, claimed))

    bench.process(record)
    bench.run(limit=limit)
    return (beats, words, claims, results, sent) if everything else (beats, words, claims, results)


@pytest.mark.parametrize("stalls", STALLS)
def test_operation_without_length_is_a_header_and_no_beats(stalls):
    works = [
        work(Operation.GRANT, 0, 0, emit=1),
        work(Operation.FORCE, 1, 3, emit=1),
        work(Operation.GRANT, 2, 0, emit=1),
        work(Operation.GRANT, 3, 0, emit=1),
        work(Operation.CONTRIBUTE, 4, 2),
    ]
    beats, _, claims, results = run(works, stalls=stalls)
    assert [header.seq for header in results.items] == [0, 1, 2, 3]
    assert [words for _, words in claims] == [2]
    assert [bool(beat.last) for _, beat in beats] == [False, True, True]


def mixture(count, slots=3):
    rng = random.Random(count)
    return [
        work(
            rng.choice((Operation.CONTRIBUTE,) * 3 + (Operation.RESEND, Operation.FORCE)),
            rng.randrange(slots),
            rng.choice((1, 2, 3, 4, 15, 16)),
            emit=rng.randrange(2),
            first=rng.randrange(2),
            fraction=44,
            limit=141,
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("stalls", STALLS)
def test_each_operation_becomes_its_words_in_order(stalls):
    works = mixture(60)
    beats, words, claims, results = run(works, stalls=stalls)
    at = 0
    for k, one in enumerate(works):
        elements = one["result"]["length"] // 4
        count = -(-elements // 2)
        own = [beat for _, beat in beats[at : at + count]]
        at += count
        assert [beat.address for beat in own] == [one["slot"] * CONFIG.segment_words + w for w in range(count)]
        assert [beat.last for beat in own] == [0] * (count - 1) + [1]
        for name in ("include", "write", "emit", "first", "fraction", "limit"):
            assert {getattr(beat, name) for beat in own} == {one[name]}, name
        assert {beat.numeric for beat in own} == {1}
        if one["operation"] == Operation.CONTRIBUTE:
            sent = b"".join(int(beat.data).to_bytes(8, "little") for beat in own)
            assert sent == payload(elements, k).ljust(8 * count, b"\0")
    assert at == len(beats)
    emitting = [one for one in works if one["emit"]]
    assert [item.seq for item in results.items] == [one["result"]["seq"] for one in emitting]
    assert [claimed for _, claimed in claims] == [-(-one["result"]["length"] // 8) for one in emitting]
    assert len(words.times) == sum(beat.include for _, beat in beats)


@pytest.mark.parametrize("loop", [LOOP_MIN, LOOP_MIN + 1, 9, 14])
@pytest.mark.parametrize("stalls", STALLS)
def test_no_beat_on_a_word_in_flight(loop, stalls):
    beats, *_ = run(mixture(50, slots=2), loop=loop, stalls=stalls)
    written = {}
    closest = []
    for cycle, beat in beats:
        if beat.address in written:
            closest.append(cycle - written[beat.address])
        if beat.write:
            written[beat.address] = cycle
    assert min(closest) >= loop
    assert stalls or min(closest) == loop


def test_operations_follow_each_other_without_a_gap():
    works = [
        work(Operation.CONTRIBUTE, slot % 8, elements, emit=slot % 2)
        for slot, elements in enumerate((16, 2, 1, 4, 16, 3, 8, 2))
    ]
    beats, *_ = run(works)
    times = [cycle for cycle, _ in beats]
    # One word alone takes two cycles.
    words = [-(-one["result"]["length"] // 8) for one in works]
    expected = [apart for count in words for apart in ([2] if count == 1 else [1] * count)]
    assert [after - before for before, after in itertools.pairwise(times)] == expected[:-1]


def test_long_payload_needs_no_pause_on_its_own_slot():
    beats, *_ = run([work(Operation.CONTRIBUTE, 0, 16)] * 5, loop=CONFIG.segment_words)
    assert [cycle for cycle, _ in beats] == list(range(beats[0][0], beats[0][0] + 5 * CONFIG.segment_words))


def test_operation_that_only_reads_stalls_no_other_operation():
    beats, *_ = run([work(Operation.RESEND, 0, 2, emit=1)] * 6)
    assert [cycle for cycle, _ in beats] == list(range(beats[0][0], beats[0][0] + 12, 2))


@pytest.mark.parametrize("elements", [1, 16])
def test_first_beat_leaves_two_cycles_behind_its_operation_and_one_behind_its_word(elements):
    for late in (0, 10):
        beats, words, _, _, works = run([work(Operation.CONTRIBUTE, 0, elements)], payload_start=late, everything=True)
        assert beats[0][0] == max(works.times[0] + 2, words.times[0] + 1)


@pytest.mark.parametrize("room", [7, 8])
def test_result_waits_for_room_for_all_its_words(room):
    works = [
        work(Operation.CONTRIBUTE, 0, 16),
        work(Operation.CONTRIBUTE, 1, 14, emit=1),
        work(Operation.CONTRIBUTE, 2, 16, emit=1),
    ]
    if room == 8:
        assert len(run(works, room=room)[0]) == 8 + 7 + 8
    else:
        with pytest.raises(TimeoutError, match=r"still hold \[0, 7\] items"):
            run(works, room=room, limit=200)


def test_result_waits_for_its_header_to_be_taken():
    beats, _, claims, results = run([work(Operation.RESEND, 0, 16, emit=1)], results_start=40)
    assert results.times == [40]
    assert claims == [(42, 8)]
    assert beats[0][0] == 42


def test_loop_wrong():
    with pytest.raises(ValueError, match="Sequencer loop must be at least 3 cycles, not 2"):
        Sequencer(CONFIG, loop=2)

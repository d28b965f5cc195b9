"""The entry of the replay service: whole frames as rows, or none; every plausible mutant is killed."""

import random
import struct

import pytest
from amaranth.hdl import Value

import hw.replay.request.receiver
import hw.stream.cut_through_queue
import hw.stream.fifo
from hw.replay.request.receiver import RequestReceiver
from hw.stream.packet import Packet
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, pack, to_words

WIDTHS = [64, 256, 512]
LATENCY = 8


def frames_of(lengths, seed=1):
    rng = random.Random(seed)
    return [rng.randbytes(length) for length in lengths]


def rows_of(frame):
    return [(row, at == len(frame) - 8) for at, (row,) in zip(range(0, len(frame), 8), struct.iter_unpack("<Q", frame))]


class Entry:
    """Frames into an inlet, each from a port of its own number modulo 16; `frames` are those that came out, with where
    they had come in."""

    def __init__(self, frames, *, bus_bits, inlet=RequestReceiver, depth=64, sent=0.0, stalls=0.0, start=0, quiet=100):
        self.dut = dut = inlet(bus_bits=bus_bits, depth=depth)
        bench, words, beside = Bench(dut), [], []
        for k, frame in enumerate(frames):
            arrived = {"port": k % 16, "length": len(frame)}
            here = to_words(frame, bus_bits)
            words += here
            beside += [[(dut.first, at == 0), (dut.arrived, arrived)] for at in range(len(here))]
        self.source = bench.source(dut.words, words, stalls=sent, beside=lambda k: beside[k])
        self.sink = bench.sink(dut.rows, stalls=stalls, start=start, beside=[dut.arrived_o])

        async def follow(ctx):
            inside = 0  # frames, and their rows that have not left
            async for _, _, valid, first, drops, gives, takes, last, busy in ctx.tick().sample(
                dut.words.valid,
                dut.first,
                dut.stat_drop,
                dut.rows.valid,
                dut.rows.ready,
                dut.rows.payload.last,
                dut.busy,
            ):
                assert busy == (inside > 0), f"{inside} frames are inside, and busy is {busy}"
                inside += (valid and first and not drops) - (gives and takes and last)

        bench.process(follow)
        bench.run(quiet=quiet, limit=12_000)
        self.dropped, self.frames, rows, about = bench.strobes["stat_drop"], [], [], set()
        for item, (arrived,) in zip(self.sink.items, self.sink.besides, strict=True):
            rows.append((item.data, bool(item.last)))
            about.add((arrived.port, arrived.length))
            if item.last:
                assert len(about) == 1, "where a frame came in must be the same for all of its rows"
                self.frames.append((rows, about.pop()))
                rows = []
        assert not rows, "a frame must end"


def expected(frames, which=None):
    return [(rows_of(frame), (k % 16, len(frame))) for k, frame in enumerate(frames) if which is None or k in which]


def check_rows(bus_bits, *, inlet=RequestReceiver, sent=0.0, stalls=0.0):
    """Every number of rows up to three words and more, and the longest frames."""
    frames = frames_of([*range(8, 3 * bus_bits // 8 + 16, 8), 1472, 64, 1480, 1488])
    entry = Entry(frames, bus_bits=bus_bits, inlet=inlet, depth=1024, sent=sent, stalls=stalls, quiet=250)
    assert entry.frames == expected(frames) and entry.dropped == 0


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("sent", STALLS)
@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_rows_are_the_bytes_of_the_frames_in_order(bus_bits, sent, stalls):
    check_rows(bus_bits, sent=sent, stalls=stalls)


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_a_row_a_cycle_and_the_first_as_late_as_promised(bus_bits):
    lengths = [64, 72, 200, 64]
    entry = Entry(frames_of(lengths), bus_bits=bus_bits, depth=1024)
    words, time, at = -(-lengths[0] // (bus_bits // 8)), None, 0
    for k, length in enumerate(lengths):
        times = entry.sink.times[at : at + length // 8]
        assert times == list(range(times[0], times[0] + len(times)))
        if k == 0:
            assert times[0] - entry.source.times[words - 1] == LATENCY
        else:
            assert times[0] - time == -(-length // (bus_bits // 8)) + 4
        at, time = at + len(times), times[-1]


def check_drops(bus_bits, inlet=RequestReceiver):
    """Check which frames are dropped if rows stall until all frames were sent: each is decided at its first word."""
    bus_bytes = bus_bits // 8
    lengths = [
        5 * bus_bytes,
        8 * bus_bytes + 8,
        2 * bus_bytes + 8,
        9 * bus_bytes,
        8,
        8 * bus_bytes,
        bus_bytes + 8,
        2 * bus_bytes,
        bus_bytes,
        bus_bytes + 8,
        8,
        8,
        8,
    ]
    words = [-(-length // bus_bytes) for length in lengths]
    there, free = [], 16
    for k, size in enumerate(words):
        if size <= free:
            there.append(k)
            free -= size
    assert free == 0 and 0 < len(there) < len(lengths) - 3
    frames = frames_of(lengths)
    entry = Entry(frames, bus_bits=bus_bits, inlet=inlet, depth=16, start=sum(words) + 30)
    assert entry.frames == expected(frames, there)
    assert entry.dropped == len(lengths) - len(there)


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_a_frame_without_room_is_dropped_whole_and_those_after_it_are_not_harmed(bus_bits):
    check_drops(bus_bits)


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_while_rows_leave_slowly_each_frame_is_whole_or_counted(bus_bits):
    frames = frames_of(
        [8 * random.Random(2).choice([1, 8, 9, 30, 60]) for _ in range(10)] + [8 * k for k in range(1, 60)]
    )
    entry = Entry(frames, bus_bits=bus_bits, depth=64, stalls=0.9, quiet=100)
    given, of = expected(frames), iter(expected(frames))
    assert all(frame in of for frame in entry.frames), "in order, and each as it was sent"
    assert 0 < len(entry.frames) < len(given) and len(entry.frames) + entry.dropped == len(given)


def test_more_than_64_frames_at_a_time_are_too_many():
    frames = frames_of([24] * 70)
    entry = Entry(frames, bus_bits=512, depth=128, start=150)
    assert entry.frames == expected(frames, range(64)) and entry.dropped == 6


def check_bit_errors(monkeypatch, bus_bits, *, inlet=RequestReceiver):
    """Frames wait behind a frame whose rows stall, and bits of some of them flip. Those frames are lost, and no others;
    a frame of which a word came with an error is lost, too."""
    memories = keep_memories(monkeypatch, hw.stream.cut_through_queue, hw.stream.fifo)
    depth, rng = 64, random.Random(4)
    dut, bus_bytes = inlet(bus_bits=bus_bits, depth=depth), bus_bits // 8
    bench = Bench(dut)
    rows, ports = [], []

    async def collect(ctx):
        async for _, _, valid, ready, row, arrived in ctx.tick().sample(
            dut.rows.valid, dut.rows.ready, dut.rows.payload, dut.arrived_o
        ):
            if valid and ready:
                rows.append((row.data, bool(row.last)))
                ports.extend([arrived.port] * row.last)

    bench.process(collect)
    frames = frames_of([8 * rng.randint(1, 3 * bus_bytes // 8) for _ in range(20)])
    frames = [frame + frame[: 2 * bus_bytes] for frame in frames][: 14 if bus_bits == 64 else 12]
    sizes = [-(-len(frame) // bus_bytes) for frame in frames]
    assert sum(sizes) <= depth
    lost = {2, 3, 5, 7, 9, len(frames) - 1}
    with_error = {4}

    async def drive(ctx):
        for k, frame in enumerate(frames):
            ctx.set(dut.arrived, {"port": k, "length": len(frame)})
            words = to_words(frame, bus_bits)
            for at, word in enumerate(words):
                word = word | {"error": k in with_error and at == k % len(words)}
                ctx.set(Value.cast(dut.words.payload), pack(Packet(bus_bits), word))
                ctx.set(dut.first, at == 0)
                ctx.set(dut.words.valid, 1)
                await ctx.tick()
            ctx.set(dut.words.valid, 0)
        await ctx.tick().repeat(20)  # the first frame was read
        words, metas = memories
        for k in lost:
            begin, size = sum(sizes[:k]), sizes[k]
            if k == 7:
                flip(ctx, metas, k, rng.randrange(20))
            else:
                at = {2: begin, 3: begin + size - 1}.get(k, rng.randrange(begin, begin + size))
                # One of three copies of `last` is no error, so the flipped bit is of the data or its count.
                flip(ctx, words, at, rng.choice([0, bus_bits - 1, bus_bits, rng.randrange(bus_bits)]))
        flip(ctx, words, sum(sizes[:6]), bus_bits + (bus_bits // 8).bit_length())  # a copy of `last`
        ctx.set(dut.rows.ready, 1)
        await ctx.tick().repeat(1000)
        assert not ctx.get(dut.busy)

    bench.drive(drive)
    assert bench.strobes["stat_corrupt"] == len(lost | with_error) and not bench.strobes["stat_drop"]
    there = [k for k in range(len(frames)) if k not in lost | with_error]
    assert ports == there and rows == [row for k in there for row in rows_of(frames[k])]


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_a_frame_with_a_bit_error_is_lost_and_no_other_frame_is(bus_bits, monkeypatch):
    check_bit_errors(monkeypatch, bus_bits)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("^ self.words.payload.error", ""),
        ("parity_of(word) != word.error", "0"),
        ("| word.meta.as_value().xor()", ""),
        ("damaged.eq(was_damaged | wrong)", "damaged.eq(wrong)"),
        ("damaged.eq(was_damaged | wrong)", "damaged.eq(was_damaged)"),
        ("damaged & ~is_checked & ~last_is_checked", "damaged & ~is_checked"),
        ("queue.repeat.eq(~is_checked & ~damaged)", "queue.repeat.eq(~is_checked)"),
        ("~word.last | last_is_checked", "1"),
        ("queue.o.valid & ~is_checked & ~last_is_checked", "queue.o.valid & ~is_checked"),
        ("self.stat_corrupt.eq(~is_checked & last_is_checked & damaged)", "self.stat_corrupt.eq(0)"),
        (
            "self.stat_corrupt.eq(~is_checked & last_is_checked & damaged)",
            "self.stat_corrupt.eq(~is_checked & damaged)",
        ),
    ],
)
def test_a_mutant_of_the_check_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.replay.request.receiver, sound, wrong).RequestReceiver
    with pytest.raises(AssertionError):
        check_bit_errors(monkeypatch, 64, inlet=broken)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("ROW_BYTES * (k + 1)", "ROW_BYTES * k"),
        ("ROW_BYTES * (k + 1)", "ROW_BYTES * (k + 2)"),
        ("word.last & ends_word", "word.last"),
        ("word.last & ends_word", "ends_word"),
        ("buffer.i.ready & ends_word", "buffer.i.ready"),
        ("with m.If(buffer.i.valid & buffer.i.ready):", "with m.If(buffer.i.valid):"),
        ("row_index.eq(0)\n", "row_index.eq(row_index)\n"),
        ("eq(self.arrived.length)", "eq(self.arrived.length - 8)"),
        ("eq(self.arrived.length)", "eq(self.arrived.length + 8)"),
        ("self.arrived_o.eq(buffer.o.payload.arrived)", "self.arrived_o.eq(word.meta.arrived)"),
        ("put.arrived.eq(word.meta.arrived)", "put.arrived.eq(self.arrived)"),
        ("entry.first.eq(self.first)", "entry.first.eq(self.words.valid)"),
        ("self.stat_drop.eq(queue.stat_drop)", "self.stat_drop.eq(0)"),
        ("queue.busy | self.rows.valid", "self.rows.valid"),
        ("queue.busy | self.rows.valid", "queue.busy"),
        ("queue.busy | self.rows.valid", "1"),
        ("packets=QUEUED_REQUESTS", "packets=32"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.request.receiver, sound, wrong).RequestReceiver
    with pytest.raises((AssertionError, TimeoutError)):
        for stalls in STALLS:
            check_rows(256, inlet=broken, stalls=stalls)
        check_drops(256, inlet=broken)
        frames = frames_of([8] * 64)
        assert Entry(frames, bus_bits=512, inlet=broken, depth=128, start=150).frames == expected(frames)

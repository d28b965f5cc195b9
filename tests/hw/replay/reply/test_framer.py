# amaranth: UnusedElaboratable=no
"""Frames of the replay service as they leave: header, body and complement, checked by scapy; every plausible mutant is
killed."""

import random

import numpy as np
import pytest
from scapy.utils import checksum

import hw.replay.reply.framer
from hw.replay.reply.framer import BODY_ROWS, FRAME_ROWS, HEAD_ROWS, ROW_BITS, ReplyFramer, queue_words
from iswitch.golden.egress import compose
from iswitch.wire import ADDRESSES, FRAME_BYTES, ones_complement_sum
from iswitch.wire.replay import END, REPLAY_HEADER
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words

WIDTHS = [64, 256, 512]
LATENCY = 2
"""Cycles from a head to the first word."""


def header(octets=None, **fields):
    made = np.frombuffer(octets or bytes(REPLAY_HEADER.itemsize), REPLAY_HEADER).copy()
    for name, value in fields.items():
        made[name] = value
    return made[0]


def jobs_of(lengths, seed=1):
    """A head and a body for each length in rows: any bytes."""
    rng = random.Random(seed)
    return [
        (
            {
                "port": rng.randrange(16),
                "address": {"mac": rng.getrandbits(48), "ip": rng.getrandbits(32), "udp": rng.getrandbits(16)},
            },
            header(rng.randbytes(REPLAY_HEADER.itemsize)),
            [rng.getrandbits(64) for _ in range(length)],
        )
        for length in lengths
    ]


def adverse():
    """Sums at the borders of 16 bits: nothing but zeros, nothing but ones, and what comes to 0xFFFF, to 0x10000 and to
    0x1FFFF."""
    where = {"port": 3, "address": {"mac": 1, "ip": 2, "udp": 3}}
    return [
        (where, header(), [2**64 - 1] * BODY_ROWS),
        (where, header(), [0] * 8),
        (where, header(), [0xFFFF_FFFF, 1]),
        (where, header(), [2**64 - 1]),
        (where, header(), [0xFFFF]),
        (where, header(), [0xFFFE << 48, 1]),
        (where, header(), [0xFFFF, 1 << 16]),
        (where, header(b"\xff" * REPLAY_HEADER.itemsize), []),
        (where, header(seq=0xFFFF), [0xFFFF << 32] * 5),
    ]


def words_of(body, bus_bits, *, spoiled=()):
    """Return the words of a body in rows, with any bits behind its end. Words with one of the rows `spoiled` have a bit
    error."""
    rows, rng = bus_bits // ROW_BITS, random.Random(9)
    for at in range(0, len(body), rows):
        here = body[at : at + rows]
        here += [rng.getrandbits(ROW_BITS) for _ in range(rows - len(here))]
        yield {
            "data": sum(row << ROW_BITS * k for k, row in enumerate(here)),
            "spoil": any(at <= row < at + rows for row in spoiled),
        }


def heads_of(jobs):
    return [
        where | {"header": int.from_bytes(header.tobytes(), "little"), "rows": len(body)}
        for where, header, body in jobs
    ]


class Exit:
    """`frames` out of an outlet, and for each what stood beside its words."""

    def __init__(self, jobs, *, bus_bits, outlet=ReplyFramer, asked=0.0, given=0.0, stalls=0.0):
        dut = outlet(bus_bits=bus_bits)
        bench = Bench(dut)
        words = [word for _, _, body in jobs for word in words_of(body, bus_bits)]
        self.heads = bench.source(dut.heads, heads_of(jobs), stalls=asked)
        self.words = bench.source(dut.words, words, stalls=given)
        self.sink = bench.sink(dut.o, stalls=stalls)

        async def follow(ctx):
            open = 0
            async for _, _, asked, taken, gives, goes, last, busy in ctx.tick().sample(
                dut.heads.valid, dut.heads.ready, dut.o.valid, dut.o.ready, dut.o.payload.last, dut.busy
            ):
                assert busy == (open > 0), f"{open} frames are under way, and busy is {busy}"
                open += (asked and taken) - (gives and goes and last)

        bench.process(follow)
        bench.run(limit=8000, quiet=100)
        self.frames = from_words(self.sink.items, bus_bits)
        assert not any(item.error for item in self.sink.items)
        self.about, here = [], []
        for item in self.sink.items:
            to = item.meta
            here.append((to.port, to.address.mac, to.address.ip, to.address.udp, to.length))
            if item.last:
                assert len(set(here)) == 1, "port, address and length must be the same for all words of a frame"
                self.about.append(here[0])
                here = []


def check(jobs, bus_bits, **options):
    out = Exit(jobs, bus_bits=bus_bits, **options)
    assert len(out.frames) == len(out.about) == len(jobs)
    for frame, about, (where, header, body) in zip(out.frames, out.about, jobs, strict=True):
        payload = header.tobytes() + b"".join(row.to_bytes(8, "little") for row in body)
        assert frame[: ADDRESSES.itemsize] == bytes(ADDRESSES.itemsize)
        assert frame[ADDRESSES.itemsize : -END.itemsize] == payload
        end = np.frombuffer(frame[-END.itemsize :], END)[0]
        assert not any(end["reserved"])
        assert int(end["complement"]) == checksum(payload), "scapy's Internet checksum of all before"
        assert ones_complement_sum(frame[ADDRESSES.itemsize :]) == 0xFFFF
        assert frame[ADDRESSES.itemsize :] == compose.with_complement(
            payload + bytes(END.itemsize), len(payload) + END.fields["complement"][1]
        )
        address = where["address"]
        assert about == (where["port"], address["mac"], address["ip"], address["udp"], len(frame))
    return out


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize(
    ("asked", "given", "stalls"), [(0, 0, 0), (0, 0.5, 0), (0, 0.9, 0), (0, 0, 0.5), (0.9, 0.5, 0.5), (0.97, 0, 0)]
)
def test_a_frame_is_header_rows_and_what_makes_the_sum_zero(bus_bits, asked, given, stalls):
    check(jobs_of([*range(18), BODY_ROWS - 1, BODY_ROWS, 0, 0, 1]), bus_bits, asked=asked, given=given, stalls=stalls)


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_sums_that_carry_into_the_complement(bus_bits):
    check(adverse(), bus_bits)
    check(adverse(), bus_bits, stalls=0.5)


def test_sums_of_every_remainder():
    """A body of one row may come to any sum: some at random, and those about 0 and 2^16."""
    where = {"port": 0, "address": {"mac": 0, "ip": 0, "udp": 0}}
    tried = [*range(8), *range(0xFFF8, 0x10008), *(random.Random(4).sample(range(1 << 17), 60))]
    check([(where, header(), [total // 2 | (total - total // 2) << 16]) for total in tried], 64)


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_a_word_a_cycle_also_from_frame_to_frame(bus_bits):
    places, lengths = bus_bits // 64, [0, 1, 7, 8, 9, 40]
    out = check(jobs_of(lengths), bus_bits)
    assert out.sink.times == list(range(out.sink.times[0], out.sink.times[0] + len(out.sink.times)))
    assert len(out.sink.times) == sum(-(-(HEAD_ROWS + length + 1) // places) for length in lengths)
    firsts = [0] + [k + 1 for k, item in enumerate(out.sink.items[:-1]) if item.last]
    assert [out.sink.times[first] - head for head, first in zip(out.heads.times, firsts, strict=True)] == (
        [LATENCY] * len(lengths)
    )


def test_words_leave_only_with_the_head_that_they_belong_to():
    """Two that are there too soon are taken, and wait for it."""
    dut = ReplyFramer(bus_bits=64)
    bench = Bench(dut)
    heads = bench.source(dut.heads, [{"rows": 2}, {"rows": 3}], stalls=0.98)
    words = bench.source(dut.words, [{"data": number, "spoil": 0} for number in range(1, 6)])
    sink = bench.sink(dut.o)
    bench.run(quiet=300)
    first, second = heads.times
    assert [time > first for time in words.times] == [False] * 2 + [True] * 3
    assert [time > second for time in words.times] == [False] * 4 + [True]
    frames = from_words(sink.items, 64)
    assert [[frame[at] for at in range(FRAME_BYTES, len(frame) - END.itemsize, 8)] for frame in frames] == [
        [1, 2],
        [3, 4, 5],
    ]


def check_spoiled(bus_bits, *, outlet=ReplyFramer, stalls=0.0):
    """Frames with a word that has a bit error, be it the first or the last, have a wrong complement, and no others."""
    jobs, spoiled = jobs_of([5, 1, 3, 1, 40, 2, 9]), ((0, 2), (0,), (2,), (), (39,), (0,), (8,))
    dut = outlet(bus_bits=bus_bits)
    bench = Bench(dut)
    words = [
        word
        for (_, _, body), wrong in zip(jobs, spoiled, strict=True)
        for word in words_of(body, bus_bits, spoiled=wrong)
    ]
    bench.source(dut.heads, heads_of(jobs), stalls=stalls)
    bench.source(dut.words, words, stalls=stalls)
    sink = bench.sink(dut.o, stalls=stalls)
    bench.run(limit=8000, quiet=100)
    frames = from_words(sink.items, bus_bits)
    sums = [ones_complement_sum(frame[ADDRESSES.itemsize :]) for frame in frames]
    assert [total == 0xFFFF for total in sums] == [not wrong for wrong in spoiled]
    for frame, (_, header, body) in zip(frames, jobs, strict=True):
        payload = header.tobytes() + b"".join(row.to_bytes(8, "little") for row in body)
        assert frame[ADDRESSES.itemsize : -END.itemsize] == payload


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("stalls", [0, 0.5])
def test_a_frame_with_a_spoiled_word_has_a_wrong_checksum_and_no_other_frame_has(bus_bits, stalls):
    check_spoiled(bus_bits, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("^ spoiled", ""),
        ("^ spoiled", "^ summed.spoil"),
        ("~summed.first & spoiled | summed.spoil", "spoiled | summed.spoil"),
        ("~summed.first & spoiled | summed.spoil", "summed.spoil"),
        ("chosen.spoil.eq(body.payload.spoil)", "chosen.spoil.eq(0)"),
    ],
)
def test_a_mutant_that_spoils_is_noticed(sound, wrong):
    broken = mutant(hw.replay.reply.framer, sound, wrong).ReplyFramer
    with pytest.raises(AssertionError):
        check_spoiled(64, outlet=broken, stalls=0.5)
        check_spoiled(256, outlet=broken)


@pytest.mark.parametrize("bus_bits", [0, 65, 128])
def test_bus_wrong(bus_bits):
    with pytest.raises(ValueError, match=f"ReplyFramer bus_bits must be 64, 256 or 512, not {bus_bits}"):
        ReplyFramer(bus_bits=bus_bits)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # words
        ("advance.eq(~self.o.valid | self.o.ready)", "advance.eq(1)"),
        ("(end + 1) << exact_log2(ROW_BYTES)", "end << exact_log2(ROW_BYTES)"),
        ("last.eq(summed.last)", "last.eq(0)"),
        ("is_chosen.eq(body.valid)", "is_chosen.eq(1)"),
        ("with m.If(body.valid & advance):", "with m.If(advance):"),
        ("body.ready.eq(advance)", "body.ready.eq(1)"),
        ("with m.If(self.heads.valid & advance):", "with m.If(self.heads.valid):"),
        # the sum
        ("folded[:16] + folded[16])", "folded[:16])"),
        ("total[:16] + total[16:]", "total[:16]"),
        ("Mux(summed.first, 0, total)", "total"),
        ("complement << ROW_BITS - 16", "complement"),
        ("~(folded[:16]", "(folded[:16]"),
        ("ROW_BITS), 0, ROW_BYTES)", "ROW_BITS), 0, 6)"),
        ("with m.If(kept_rows[k]):", "with m.If(1):"),
        ("chosen.end.eq(rows_left)", "chosen.end.eq(0)"),
        # what goes beside
        ("                    route.eq(next_route),\n", ""),
        ("+ (given.rows << exact_log2(ROW_BYTES))", ""),
        ("FRAME_BYTES + END.itemsize +", "FRAME_BYTES +"),
        ("route.port.eq(given.port),", ""),
        ("route.address.eq(given.address),", ""),
        ("has_begun | is_summed | self.o.valid", "is_summed | self.o.valid"),
        ("has_begun | is_summed | self.o.valid", "has_begun | self.o.valid"),
        ("has_begun | is_summed | self.o.valid", "has_begun | is_summed"),
        # rows
        ("head_left.eq(head_words - 1)", "head_left.eq(head_words)"),
        ("with m.If(~has_rows):", "with m.If(0):"),
        ("is_partial.eq(~kept_rows[-1])", "is_partial.eq(ends_here)"),
        ("behind + rows_per_word + 1)", "behind + rows_per_word)"),
        ("behind + k + 1)", "behind + k)"),
        ("*show_rows(rows_left, rows_per_word)", "*show_rows(rows_left, 0)"),
        ("<< 8 * ADDRESSES.itemsize", "<< 8 * ADDRESSES.itemsize - 8"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.reply.framer, sound, wrong).ReplyFramer
    with pytest.raises((AssertionError, TimeoutError)):
        check(adverse(), 256, outlet=broken)
        for given, stalls in ((0, 0), (0.5, 0.5), (0.9, 0)):  # at last, the frame's words come one by one
            check(jobs_of([0, 1, 2, 3, 4, 30, 0, 7]), 256, outlet=broken, given=given, stalls=stalls)


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_queue_holds_the_longest_frame_and_no_more_than_twice_that(bus_bits):
    assert 1 <= queue_words(bus_bits) * bus_bits / (FRAME_ROWS * ROW_BITS) < 2

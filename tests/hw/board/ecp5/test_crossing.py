# amaranth: UnusedElaboratable=no
"""Words cross from clock to clock: all, in order, whatever the clocks; frames appear whole and then never run dry."""

import random

import pytest
from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator

import hw.board.ecp5.crossing
from hw.board.ecp5.crossing import ClockCrossing
from hw.stream.packet import Packet
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, pack

SHAPE = Packet(64)
CLOCKS = [(20.0, 8.0), (8.0, 20.0), (8.0, 8.0), (10.0, 9.99), (7.3, 31.1)]
"""Periods in ns of writer and reader."""


def crossed(words, *, periods, stalls, depth, store_and_forward, made=ClockCrossing, phase=0.3):
    """What comes out with the time of each word, in cycles of the reader. The reader stalls too, but not the writer's
    pauses."""
    dut = made(SHAPE, depth=depth, i_domain="write", o_domain="read", store_and_forward=store_and_forward)
    m = Module()
    m.domains += [ClockDomain("write", reset_less=True), ClockDomain("read", reset_less=True)]
    m.submodules.dut = dut
    found, held = [], []

    async def write(ctx):
        rng = random.Random(1)
        for word in words:
            while rng.random() < stalls:
                ctx.set(dut.i.valid, 0)
                await ctx.tick("write")
            ctx.set(dut.i.payload, SHAPE.from_bits(pack(SHAPE, word)))
            ctx.set(dut.i.valid, 1)
            while True:
                *_, ready = await ctx.tick("write").sample(dut.i.ready)
                if ready:
                    break
        ctx.set(dut.i.valid, 0)

    async def read(ctx):
        rng, cycle, quiet = random.Random(2), 0, 0
        while len(found) < len(words) and quiet < 3000:
            ready = rng.random() >= stalls
            ctx.set(dut.o.ready, ready)
            *_, valid, payload = await ctx.tick("read").sample(dut.o.valid, dut.o.payload)
            if held:
                assert valid and payload == held.pop()
            if valid and not ready:
                held.append(payload)
            if valid and ready:
                found.append((cycle, int(payload.data), int(payload.count), int(payload.last), int(payload.error)))
                quiet = 0
            cycle, quiet = cycle + 1, quiet + 1

    simulator = Simulator(m)
    simulator.add_clock(periods[0] * 1e-9, domain="write")
    simulator.add_clock(periods[1] * 1e-9, domain="read", phase=phase * periods[1] * 1e-9)
    simulator.add_testbench(write)
    simulator.add_testbench(read)
    simulator.run()
    return found


def frames(lengths, seed=3):
    rng = random.Random(seed)
    return [
        {
            "data": rng.getrandbits(64),
            "count": rng.randint(1, 8) if k == length - 1 else 8,
            "last": k == length - 1,
            "error": rng.getrandbits(1),
        }
        for length in lengths
        for k in range(length)
    ]


def values(words):
    return [(word["data"], word["count"], int(word["last"]), word["error"]) for word in words]


@pytest.mark.parametrize("store_and_forward", [False, True], ids=["words", "frames"])
@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("periods", CLOCKS, ids=str)
def test_every_word_crosses_once_and_in_order(periods, stalls, store_and_forward):
    words = frames([1, 2, 3, 7, 8, 1, 1, 1, 5, 16, 4, 15] * 6)
    for depth in (16, 32):
        assert [
            word
            for _, *word in map(
                list, crossed(words, periods=periods, stalls=stalls, depth=depth, store_and_forward=store_and_forward)
            )
        ] == [list(value) for value in values(words)]


@pytest.mark.parametrize("periods", [(20.0, 20.0), (20.0, 64.0), (9.9, 10.0)], ids=str)
def test_a_frame_that_has_begun_never_runs_dry(periods):
    """The writer pauses in two thirds of its cycles, the reader takes a word in each of its own."""
    lengths = [1, 2, 190, 3, 64, 8, 190]
    found = crossed(frames(lengths), periods=periods, stalls=0, depth=256, store_and_forward=True, made=slow_writer)
    at = 0
    for length in lengths:
        times = [row[0] for row in found[at : at + length]]
        assert times == list(range(times[0], times[0] + length))
        at += length
    assert at == len(found)


def slow_writer(*args, **options):
    """A crossing that accepts a word in every third cycle only."""

    class Slow(wiring.Component):
        i: In(stream.Signature(SHAPE))
        o: Out(stream.Signature(SHAPE))

        def elaborate(self, platform):
            m = Module()
            m.submodules.inner = inner = ClockCrossing(*args, **options)
            turn = Signal(range(3))
            m.d.write += turn.eq(turn + 1)
            with m.If(turn == 2):
                m.d.write += turn.eq(0)
            m.d.comb += [
                inner.i.payload.eq(self.i.payload),
                inner.i.valid.eq(self.i.valid & (turn == 0)),
                self.i.ready.eq(inner.i.ready & (turn == 0)),
            ]
            connect(m, inner.o, flipped(self.o))
            return m

    return Slow()


@pytest.mark.mutant
def test_a_frame_shown_before_its_end_is_noticed(monkeypatch):
    early = mutant(hw.board.ecp5.crossing, "put.en & self.i.payload.last", "put.en").ClockCrossing
    monkeypatch.setitem(globals(), "ClockCrossing", early)
    with pytest.raises(AssertionError):
        test_a_frame_that_has_begun_never_runs_dry((20.0, 20.0))


@pytest.mark.mutant
def test_a_memory_written_over_is_noticed():
    full = mutant(hw.board.ecp5.crossing, "self.i.ready.eq(opens)", "self.i.ready.eq(1)").ClockCrossing
    words = frames([200])
    found = crossed(words, periods=(8.0, 20.0), stalls=0, depth=16, store_and_forward=False, made=full)
    assert [tuple(row[1:]) for row in found] != values(words)


@pytest.mark.parametrize("depth", [0, 2, 3, 12, 100])
def test_crossing_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"ClockCrossing depth must be a power of two of at least 4, not {depth}"):
        ClockCrossing(SHAPE, depth=depth, i_domain="write", o_domain="read", store_and_forward=False)

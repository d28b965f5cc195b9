"""Addresses of records and of stretches of logs, one after another; every plausible mutant is killed."""

import random

import pytest

import hw.replay.memory.sequencer
from hw.replay.memory.sequencer import UnitSequencer
from iswitch.config import Replay
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

REPLAY = Replay(tables=2, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, record_bytes=256)
LOGS = 2 * 64 * 256


def addresses(table, span):
    if span["in_record"]:
        base = table * 64 * 256 + span["index"] * 256
        return [base + 64 * k for k in range(span["count"])]
    return [LOGS + 4096 * span["index"] + 64 * ((span["start"] + k) % 64) for k in range(span["count"])]


def spans(rng):
    while True:
        yield rng.choice(
            [
                {"in_record": 1, "index": rng.randrange(64), "start": 0, "count": 4},
                {"in_record": 0, "index": rng.randrange(3), "start": rng.randrange(64), "count": rng.randint(1, 22)},
            ]
        )


def check(sequencer=UnitSequencer, *, stalls=0.0, ranges=60, seed=1):
    """Each range follows the one before at once, or when it is idle; nothing is offered for none."""
    rng, dut = random.Random(seed), sequencer(REPLAY)
    bench, expected = Bench(dut, stalls=stalls), []
    sink = bench.sink(dut.units)

    async def drive(ctx):
        source = spans(rng)
        for _ in range(ranges):
            span, table = next(source), rng.randrange(2)
            at_once = rng.random() < 0.5
            while not (ctx.get(dut.idle) or at_once and ctx.get(dut.last)):
                await ctx.tick()
            ctx.set(dut.load, 1)
            ctx.set(dut.range, span)
            await ctx.tick()
            ctx.set(dut.load, 0)
            ctx.set(dut.table, table)
            expected.extend(addresses(table, span))
        while not ctx.get(dut.idle):
            await ctx.tick()
        await ctx.tick().repeat(30)

    bench.drive(drive)
    assert sink.items == expected


@pytest.mark.parametrize("stalls", STALLS)
def test_addresses_are_those_of_the_ranges(stalls):
    check(stalls=stalls)


def test_an_address_in_each_cycle():
    dut = UnitSequencer(REPLAY)
    bench = Bench(dut)
    sink = bench.sink(dut.units)

    async def drive(ctx):
        await ctx.tick().repeat(2)
        for index in (5, 6, 7):
            ctx.set(dut.load, 1)
            ctx.set(dut.range, {"in_record": 1, "index": index, "start": 0, "count": 4})
            await ctx.tick()
            ctx.set(dut.load, 0)
            while not ctx.get(dut.last):
                await ctx.tick()
        await ctx.tick().repeat(5)

    bench.drive(drive)
    assert len(sink.items) == 12 and sink.times[-1] - sink.times[0] == 11


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("records + index * replay.record_bytes", "index * replay.record_bytes"),
        ("index * replay.record_bytes", "index[:4] * replay.record_bytes"),
        ("logs + index", "index"),
        ("* replay.log_bytes", "* replay.record_bytes"),
        ("unit[: exact_log2(replay.log_units)]", "unit[:4]"),
        ("self.units.valid.eq(~self.idle)", "self.units.valid.eq(1)"),
        ("self.last.eq(taken & (left == 1))", "self.last.eq(left == 1)"),
        ("unit.eq(unit + 1)", "unit.eq(unit)"),
        ("in_record.eq(self.range.in_record)", "in_record.eq(1)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.memory.sequencer, sound, wrong).UnitSequencer
    with pytest.raises(AssertionError):
        for stalls in STALLS:
            check(broken, stalls=stalls)

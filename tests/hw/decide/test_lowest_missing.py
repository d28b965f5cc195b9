"""The slowest live member of a job, against the golden model; every plausible mutant is killed."""

import random

import pytest
from amaranth.hdl import Value

import hw.decide.lowest_missing
from hw.decide.lowest_missing import LowestMissing
from iswitch.config import Config
from iswitch.golden.decide import tree
from iswitch.golden.decide.slot import Ring
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

SERIAL = 1 << 32


def config(members, window):
    return Config(ports=2, bus_bits=64, members=members, jobs=2, window=window, elements=16, queue_bytes=4096)


def check(lowest, members=5, window=4):
    """One question a cycle: members that are live lack results as far from each other's as a ring allows, those that
    have left any."""
    rng, dut = random.Random(1), lowest(config(members, window))
    spread = 4 * window

    async def bench(ctx):
        for _ in range(600):
            start = rng.choice([0, SERIAL - 1, SERIAL // 2, rng.randrange(SERIAL)])
            acknowledged = [(start + rng.choice([0, spread, rng.randint(0, spread)])) % SERIAL for _ in range(members)]
            member = rng.randrange(members)
            live = rng.randrange(1 << members) | 1 << member
            acknowledged = [at if live >> m & 1 else rng.randrange(SERIAL) for m, at in enumerate(acknowledged)]
            gain = rng.choice([0, 0, 1, 2 * window])
            for name, value in (
                ("acknowledged", sum(at << 32 * m for m, at in enumerate(acknowledged))),
                ("live", live),
                ("member", member),
                ("gain", gain),
            ):
                ctx.set(Value.cast(getattr(dut, name)), value)
            await ctx.tick().repeat(3)
            acknowledged[member] += gain
            assert ctx.get(dut.lowest) == tree.lowest_acknowledged(Ring((), tuple(acknowledged), live, 1)) % SERIAL

    Bench(dut).drive(bench)


@pytest.mark.parametrize(("members", "window"), [(2, 1), (3, 4096), (5, 4), (8, 64), (32, 2)])
def test_lowest_is_the_models(members, window):
    check(LowestMissing, members, window)


LATENCY, GAIN_LATENCY = 3, 2
"""Cycles from the question, and from its gain, to the answer."""


def check_each_cycle(lowest, members=5, window=4):
    """A question every cycle, whose gain comes a cycle after it. The member need not be live itself."""
    rng, dut = random.Random(2), lowest(config(members, window))
    spread = 4 * window
    questions = []
    for _ in range(900):
        start = rng.choice([0, SERIAL - 1, SERIAL // 2, rng.randrange(SERIAL)])
        acknowledged = [(start + rng.choice([0, spread, rng.randint(0, spread)])) % SERIAL for _ in range(members)]
        member, live = rng.randrange(members), rng.randrange(1, 1 << members)
        if rng.random() < 0.3:  # all are far behind the member, or far ahead of it
            acknowledged = [
                start if m == member else (start + rng.choice([-1, 1]) * spread) % SERIAL for m in range(members)
            ]
            live = rng.choice([live, 1 << (member + 1) % members])
        acknowledged = [
            at if live >> m & 1 or m == member else rng.randrange(SERIAL) for m, at in enumerate(acknowledged)
        ]
        questions.append((acknowledged, live, member, rng.choice([0, 1, 2 * window, spread - 1])))

    async def bench(ctx):
        for cycle in range(len(questions) + LATENCY):
            if cycle >= LATENCY:
                acknowledged, live, member, gain = questions[cycle - LATENCY]
                known = tuple(at + gain * (m == member) for m, at in enumerate(acknowledged))
                assert ctx.get(dut.lowest) == tree.lowest_acknowledged(Ring((), known, live, 1)) % SERIAL
            if cycle < len(questions):
                acknowledged, live, member, _ = questions[cycle]
                ctx.set(Value.cast(dut.acknowledged), sum(at << 32 * m for m, at in enumerate(acknowledged)))
                ctx.set(dut.live, live)
                ctx.set(dut.member, member)
            if 0 <= cycle - (LATENCY - GAIN_LATENCY) < len(questions):
                ctx.set(dut.gain, questions[cycle - (LATENCY - GAIN_LATENCY)][3])
            await ctx.tick()

    Bench(dut).drive(bench)


@pytest.mark.parametrize(("members", "window"), [(2, 1), (5, 4), (8, 64)])
def test_a_question_each_cycle_is_answered_also_for_a_member_that_is_not_live(members, window):
    check_each_cycle(LowestMissing, members, window)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("Mux(self.live[k] & ", "Mux(1 & "),
        ("a < b", "a > b"),
        ("slots) + 3", "slots) + 1"),
        ("Mux(member_is_live, self.gain[:bits], nearest)", "0"),
        ("& (self.member != k)", ""),
        ("lower(reduce_tree(lower, least_of), own)", "reduce_tree(lower, least_of)"),
        ("eq(reference + least)", "eq(reference)"),
        ("reference.eq(own_seq_2)", "reference.eq(own_seq + 1)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.decide.lowest_missing, sound, wrong).LowestMissing
    with pytest.raises(AssertionError):
        check(broken)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("own_seq_2.eq(own_seq_1)", "own_seq_2.eq(own_seq)"),
        ("self.live.bit_select(self.member, 1)", "1"),
        ("(1 << bits - 1) - 1", "(1 << bits - 2) - 1"),
    ],
)
def test_a_mutant_is_noticed_by_a_question_each_cycle(sound, wrong):
    broken = mutant(hw.decide.lowest_missing, sound, wrong).LowestMissing
    with pytest.raises(AssertionError):
        check_each_cycle(broken)

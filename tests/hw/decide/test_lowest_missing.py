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

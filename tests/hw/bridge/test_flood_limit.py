# amaranth: UnusedElaboratable=no
"""The token buckets against the golden model, over bursts, times that jump, and times that wrap."""

import random

import pytest

import hw.bridge.flood_limit
from hw.bridge.flood_limit import FloodLimit
from iswitch.config import Config
from iswitch.golden.bridge.flood_limit import FloodLimit as Model
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

CONFIG = Config(ports=3, flood_interval_us=64)


def play(component, *, seed: int, config: Config = CONFIG, cycles: int = 10000) -> set[tuple[bool, bool]]:
    """Take tokens in a share of cycles that changes; return the answers that occurred."""
    dut, model = component(config), Model(config.ports, config.flood_interval_us)
    rng, seen = random.Random(seed), set()

    async def bench(ctx):
        now_us, chance, port = 0, 1.0, 0
        for cycle in range(cycles):
            if cycle % 500 == 0:
                chance = rng.choice([0.5, 1.0, 1.0])
                now_us = (now_us + rng.choice([0, 0, 0, 0, 5000, 64 * 200, 2**31, 2**32 - 3 * 64])) % 2**32
                ctx.set(dut.now_us, now_us)
                ctx.set(dut.takes, 0)
                await ctx.tick()
                # A token may be taken in the cycle in which others come.
                takes = bool(ctx.get(dut.admits))
                ctx.set(dut.takes, takes)
                assert model.admits(port, bpdu=False) or not takes
                await ctx.tick()
                model.advance(now_us)
            port = rng.randrange(config.ports) if rng.random() < 0.2 else 1
            ctx.set(dut.port, port)
            ctx.set(dut.takes, 0)
            answers = bool(ctx.get(dut.admits)), bool(ctx.get(dut.admits_bpdu))
            limited = bool(config.flood_interval_us)
            assert answers == ((model.tokens[port] >= 32, model.tokens[port] >= 1) if limited else (True, True))
            seen.add(answers)
            bpdu = rng.random() < 0.3
            if rng.random() < chance and answers[bpdu]:
                ctx.set(dut.takes, 1)
                assert model.admits(port, bpdu=bpdu)
            await ctx.tick()

    Bench(dut).drive(bench)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_buckets_are_the_models(seed):
    assert play(FloodLimit, seed=seed) == {(True, True), (False, True), (False, False)}


def test_without_an_interval_there_is_no_limit():
    assert play(FloodLimit, seed=1, config=Config(flood_interval_us=0)) == {(True, True)}


def test_a_token_comes_2_cycles_after_its_time():
    dut = FloodLimit(CONFIG)

    async def bench(ctx):
        ctx.set(dut.takes, 1)
        await ctx.tick().repeat(1023)
        ctx.set(dut.takes, 0)
        assert not ctx.get(dut.admits_bpdu)
        ctx.set(dut.now_us, 64)
        await ctx.tick()
        assert not ctx.get(dut.admits_bpdu)
        await ctx.tick()
        assert ctx.get(dut.admits_bpdu)

    Bench(dut).drive(bench)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.takes & (self.port == port)", "self.takes"),
        ("Mux(sum[BURST_BITS], full, sum)", "sum"),
        ("at_most_full(taken)", "at_most_full(kept)"),
        ("passed_less_one.eq(granted - 1)", "passed_less_one.eq(-1)"),
        ("Mux(elapsed[BURST_BITS:].any(), full, elapsed)", "elapsed"),
        ("chosen[RESERVE_BITS:].any()", "chosen.any()"),
        ("seen.eq(tick), ", ""),
    ],
)
def test_mutant_is_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        for seed in range(3):
            play(mutant(hw.bridge.flood_limit, sound, wrong).FloodLimit, seed=seed)

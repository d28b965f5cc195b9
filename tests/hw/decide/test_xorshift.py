"""The generator against its model."""

import pytest

from hw.decide.xorshift import DEFAULT_SEED, Xorshift64
from iswitch.golden.decide import random as model
from sim.bench.stream import Bench


def values(seed, draws):
    """What `value` shows in each cycle; `draws` says in which of them it is taken."""
    dut, seen = Xorshift64(), []

    async def drive(ctx):
        ctx.set(dut.seed, seed)
        for k, draw in enumerate(draws):
            ctx.set(dut.draw, draw)
            seen.append(ctx.get(dut.value))
            await ctx.tick()
            if any(draws[: k + 1]):
                ctx.set(dut.seed, 0x123)  # read at the first draw only

    Bench(dut).drive(drive)
    return seen


@pytest.mark.parametrize("seed", [0, 1, 0xFFFFFFFFFFFFFFFF, DEFAULT_SEED, 0x0123456789ABCDEF])
def test_draws_are_the_models(seed):
    state, expected = model.initial(seed), []
    for _ in range(100):
        state = model.step(state)
        expected.append(state)
    assert values(seed, [1] * 100) == expected


def test_value_stays_until_it_is_drawn():
    a, b, c, d = values(5, [1] * 4)
    assert values(5, [0, 0, 1, 0, 1, 1, 0]) == [a, a, a, b, b, c, d]


def test_first_value_by_hand():
    """Seed 1: 1 ^ 1 << 13, then ^ itself >> 7, then ^ itself << 17."""
    assert values(1, [1]) == [0x40822041]
    assert model.DEFAULT_SEED == DEFAULT_SEED

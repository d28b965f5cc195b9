# amaranth: UnusedElaboratable=no
"""The high half of a product against integers; every plausible mutant is killed."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

import hw.replay.sampling.multiplier
from hw.replay.sampling.multiplier import FRACTION_BITS, LATENCY
from sim.bench.mutant import mutant

BITS = [1, 6, 23, 24, 25, 38, 44, 47, 48, 49, 60, 64]


def check(module=hw.replay.sampling.multiplier, *, bits=44, adds=True, stalls=0.3, count=300):
    """Numbers of which many are next to a power of two, or have long runs of ones, so that carries go far."""
    rng, m = random.Random(bits), Module()
    fraction, whole, plus, goes = Signal(FRACTION_BITS), Signal(bits), Signal(64), Signal()
    found = module.multiply_high(m, fraction, whole, name="half", addend=plus if adds else None, enable=goes)
    m.d.comb += Signal(len(found)).eq(found)
    some = lambda width: rng.choice(
        [
            rng.getrandbits(width),
            (1 << width) - 1,
            1 << rng.randrange(width),
            (1 << width) - (1 << rng.randrange(width)),
            0,
        ]
    )
    asked = [(some(FRACTION_BITS), some(bits), some(64)) for _ in range(count)]
    expected = [((f * w >> FRACTION_BITS) + (p if adds else 0)) % (1 << max(bits, 64)) for f, w, p in asked]
    simulator, seen = Simulator(m), []
    simulator.add_clock(1e-8)

    async def play(ctx):
        k = 0
        while k < count + LATENCY:
            going = rng.random() >= stalls
            ctx.set(goes, going)
            ctx.set(fraction, asked[k][0] if k < count else 0)
            ctx.set(whole, asked[k][1] if k < count else 0)
            ctx.set(plus, asked[k - 1][2] if 0 < k <= count else 0)
            if k >= LATENCY:
                seen.append(ctx.get(found)) if going else None
            await ctx.tick()
            k += going

    simulator.add_testbench(play)
    simulator.run()
    assert seen == expected


@pytest.mark.parametrize("stalls", [0, 0.5])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("bits", BITS)
def test_a_product_is_rounded_down_as_integers_are(bits, adds, stalls):
    check(bits=bits, adds=adds, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("(first >> ROW_BITS) + second", "(first >> ROW_BITS) + second + 1"),
        ("(low >> ROW_BITS) + high", "high"),
        ("(odd << COLUMN_BITS)", "(odd << COLUMN_BITS - 1)"),
        ("(addend << ROW_BITS)", "addend"),
        ("(fourth << ROW_BITS)", "fourth"),
        ("with m.If(enable):", "with m.If(1):"),
        ("PLACE_BITS = 2 * COLUMN_BITS", "PLACE_BITS = 2 * COLUMN_BITS - 8"),
        ("max(FRACTION_BITS, len(factor)) + ROW_BITS", "len(factor)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.sampling.multiplier, sound, wrong)
    with pytest.raises(AssertionError):
        check(broken, bits=64)

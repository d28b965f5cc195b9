"""Scrambler and descrambler, against shift registers of single bits."""

import random

import pytest

import hw.ethernet.scramble
from hw.ethernet.scramble import Descrambler, Scrambler
from sim.bench.baser import Shift, descrambled, number, scrambled
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

RNG = random.Random(1)
WORDS = [0, 0, (1 << 64) - 1, *(RNG.getrandbits(64) for _ in range(20)), 0, 0, 0]


def run(dut, words):
    found = []

    async def feed(ctx):
        for word in words:
            ctx.set(dut.i, word)
            await ctx.tick()
            found.append(ctx.get(dut.o))

    Bench(dut).drive(feed)
    return found


def blocks(words):
    return [[0, 1, *(word >> k & 1 for k in range(64))] for word in words]


def line_of(words):
    """By single bits."""
    line = list(scrambled(blocks(words), Shift()))
    return [number(line[at + 2 : at + 66]) for at in range(0, len(line), 66)]


def test_what_is_scrambled_is_what_single_bits_make():
    assert run(Scrambler(), WORDS) == line_of(WORDS)


def test_what_is_descrambled_is_what_was_scrambled_from_the_59th_bit_on_whatever_the_register_held():
    for seed in (0, 12345):
        line = list(scrambled(blocks(WORDS), Shift(seed)))
        found = run(Descrambler(), [number(line[at + 2 : at + 66]) for at in range(0, len(line), 66)])
        assert found[1:] == WORDS[1:] and found[0] >> 58 == WORDS[0] >> 58


def test_descrambling_agrees_with_single_bits_on_noise():
    noise = [RNG.getrandbits(64) for _ in range(20)]
    assert run(Descrambler(), noise) == [number(plain[2:]) for plain in descrambled(blocks(noise), Shift(0))]


@pytest.mark.parametrize("bit", [0, 5, 6, 24, 25, 63])
def test_a_wrong_bit_on_the_line_is_wrong_now_39_and_58_bits_later(bit):
    line = line_of(WORDS)
    line[4] ^= 1 << bit
    wrong = [number ^ word for number, word in zip(run(Descrambler(), line)[1:], WORDS[1:], strict=True)]
    places = [64 * (k + 1) + at for k, word in enumerate(wrong) for at in range(64) if word >> at & 1]
    assert places == [256 + bit, 256 + bit + 39, 256 + bit + 58]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "oracle"),
    [
        ("Scrambler", lambda: line_of(WORDS)),
        ("Descrambler", lambda: [number(plain[2:]) for plain in descrambled(blocks(WORDS), Shift(0))]),
    ],
)
@pytest.mark.parametrize("wrong", ["(38, 58)", "(39, 57)"])
def test_wrong_taps_are_noticed(part, oracle, wrong):
    assert run(getattr(mutant(hw.ethernet.scramble, "(39, 58)", wrong), part)(), WORDS) != oracle()

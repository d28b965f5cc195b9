"""Elements of two bytes: every pattern widened, and sums rounded once, against numpy's float16 and exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator

import hw.numeric.half
import hw.numeric.lane
import hw.numeric.window64
from hw.numeric.half import narrowed
from hw.numeric.lane import Lane
from iswitch.wire import Format
from sim.bench.mutant import mutant

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
PARTS = 16
"""Elements that are widened in one step of the simulator."""
MANTISSA_BITS = {Format.BF16: 7, Format.FP16: 10}
NAN = {Format.BF16: 0x7FC0, Format.FP16: 0x7E00}


def outputs_of(function, bits):
    """What a function of the 16 bits of an element, and of its place, is for each of `bits`."""
    m, source, found = Module(), Signal(16 * PARTS), []
    output = Signal(32 * PARTS)
    m.d.comb += output.eq(Cat(function(m, source.word_select(k, 16), k) for k in range(PARTS)))

    async def read(ctx):
        for at in range(0, len(bits), PARTS):
            ctx.set(source, int.from_bytes(bits[at : at + PARTS].tobytes(), "little"))
            found.append(ctx.get(output).to_bytes(4 * PARTS, "little"))

    simulator = Simulator(m)
    simulator.add_testbench(read)
    simulator.run()
    return np.frombuffer(b"".join(found), "<u4")


def widen(bits, *, binary16, as_is=False, module=hw.numeric.half):
    return outputs_of(lambda m, half, k: module.widened(m, f"element_{k}", half, binary16=binary16, as_is=as_is), bits)


def check_binary16(bits, module=hw.numeric.half):
    found, expected = widen(bits, binary16=True, module=module).view(np.float32), bits.view(np.float16)
    numbers = ~np.isnan(expected)
    assert (np.isnan(found) == ~numbers).all()
    assert (found[numbers].view(np.uint32) == expected[numbers].astype(np.float32).view(np.uint32)).all()


def test_each_binary16_pattern_becomes_the_float32_that_numpy_makes_of_it():
    check_binary16(PATTERNS)


def test_each_bfloat16_pattern_is_the_upper_half_of_a_float32_and_an_integer_stays_one():
    assert (widen(PATTERNS, binary16=False) == PATTERNS.astype(np.uint32) << 16).all()
    assert (widen(PATTERNS[: 1 << 13], binary16=True, as_is=True) == PATTERNS[: 1 << 13]).all()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("place + 127 - 24", "place + 127 - 25"),
        ("~fraction[place + 1 :].any()", "1"),
        ("FP16_MANTISSA_BITS - place", "FP16_MANTISSA_BITS - place - 1"),
        ("exponent.all()", "0"),
        ("Mux(exponent.any(), normal, subnormal)", "normal"),
    ],
)
def test_a_mutant_of_the_conversion_is_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        check_binary16(PATTERNS[: 1 << 15], mutant(hw.numeric.half, sound, wrong))


def nearest(format, total, fraction):
    """The pattern nearest to total * 2^-fraction, ties to even, by exact fractions."""
    mantissa_bits = MANTISSA_BITS[format]
    exponent_bits = 15 - mantissa_bits
    bias = (1 << exponent_bits - 1) - 1
    sign, value = (total < 0) << 15, abs(Fraction(total, 1)) / Fraction(2) ** fraction
    if value == 0:
        return 0
    # The exponent of the first bit, but not below that of subnormals.
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= value < Fraction(2) ** exponent
    exponent = max(exponent, 1 - bias)
    count = round(value / Fraction(2) ** (exponent - mantissa_bits))  # half to even
    pattern = count + (exponent + bias - 1 << mantissa_bits)
    return sign | min(pattern, (1 << exponent_bits) - 1 << mantissa_bits)


def rounded(formats, fractions, totals, poisons, lane=Lane):
    """The elements that a lane makes of stored sums, to which nothing is added."""
    dut, found = lane(half_width=True), []
    m = Module()
    m.submodules.lane = dut
    is_binary16, element = Signal(), Signal(16)
    m.d.comb += element.eq(narrowed(dut.result, binary16=is_binary16, as_is=0))

    async def bench(ctx):
        for cycle in range(len(totals) + Lane.RESULT_AT):
            at = cycle - Lane.RESULT_AT
            if at >= 0:
                ctx.set(is_binary16, formats[at] == Format.FP16)
                found.append(ctx.get(element))
            if cycle < len(totals):
                ctx.set(dut.format, formats[cycle])
                ctx.set(dut.fraction, fractions[cycle])
            at = cycle - Lane.READ_AT
            if 0 <= at < len(totals):
                ctx.set(dut.stored, (totals[at] % (1 << 64)) | poisons[at] << 64)
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def cases(count):
    """Sums near every power of two, near ties of either format, and of any size, formats and fractions mixed."""
    rng = np.random.default_rng(11)
    edges = [sign * ((1 << place) + step) for place in range(63) for step in (-1, 0, 1) for sign in (1, -1)]
    length = rng.integers(1, 63, count)
    kept = rng.integers(6, 14, count)
    value = (rng.integers(0, 1 << 62, count) >> (62 - length)) & -1 << np.maximum(length - kept, 0)
    value += rng.integers(-1, 2, count)
    totals = [0, -1, 1, (1 << 63) - 1, -(1 << 63), *edges, *np.where(rng.integers(0, 2, count), value, -value).tolist()]
    formats = rng.choice([Format.BF16, Format.FP16], len(totals)).tolist()
    fractions = [
        int(rng.integers(24, 43)) if format == Format.FP16 else int(rng.choice([-126, -70, 0, 44, 126, 133, 140, 149]))
        for format in formats
    ]
    return formats, fractions, totals, (rng.random(len(totals)) < 0.05).astype(int).tolist()


def check_rounding(count, lane=Lane):
    formats, fractions, totals, poisons = cases(count)
    expected = [
        NAN[format] if poison else nearest(format, total, fraction)
        for format, fraction, total, poison in zip(formats, fractions, totals, poisons, strict=True)
    ]
    for found, wanted, *case in zip(
        rounded(formats, fractions, totals, poisons, lane), expected, formats, fractions, totals, strict=True
    ):
        assert found == wanted, f"{found:#06x}, not {wanted:#06x}: {case}"


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_oracle_of_exact_fractions_rounds_to_binary16_as_numpy_does():
    for fraction in (24, 30, 42):
        for total in (*range(-3000, 3000, 7), *(1 << k for k in range(50)), *(3 << k for k in range(50))):
            value = math.ldexp(total, -fraction)  # exact
            assert nearest(Format.FP16, total, fraction) == int(np.float16(value).view(np.uint16)), (total, fraction)


def test_a_sum_is_rounded_once_to_the_nearest_element():
    check_rounding(1500)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("rest = rest | skipped[skip]", "rest = rest"),
        ("low + 3 - places : guard + 3 - places", "low + 4 - places : guard + 3 - places"),
        ("round_up &= ~self.half", "round_up &= 1"),
        ("exponent[5:].any() | exponent[1:5].all()", "exponent[5:].any()"),
        ('once(m, "odd", chosen(1) ^ self.sign)', "mantissa[0]"),
    ],
)
def test_a_mutant_that_rounds_wrongly_is_noticed(sound, wrong, monkeypatch):
    wrong_module = mutant(hw.numeric.window64, sound, wrong)
    for name in ("Normaliser", "Rounder"):
        monkeypatch.setattr(hw.numeric.lane, name, getattr(wrong_module, name))
    with pytest.raises(AssertionError, match="not 0x"):
        check_rounding(1500)


@pytest.mark.mutant
def test_a_lane_without_the_bias_of_binary16_is_noticed():
    wrong = mutant(hw.numeric.lane, "ROOM_BITS - BIAS_DIFFERENCE", "ROOM_BITS")
    with pytest.raises(AssertionError, match="not 0x"):
        check_rounding(200, wrong.Lane)


def test_a_poisoned_element_is_the_formats_nan():
    assert rounded([5, 6], [44, 30], [7, 7], [1, 1]) == [NAN[Format.BF16], NAN[Format.FP16]]

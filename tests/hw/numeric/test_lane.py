"""The lane against the golden models, element by element, formats and jobs mixed cycle by cycle."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

import hw.numeric.lane
from hw.numeric.lane import Lane
from hw.numeric.window64 import Aligner, Rounder
from iswitch.golden.numeric import lane as model
from iswitch.wire import Format
from sim.bench.mutant import mutant

NAN, INF = 0x7FC00000, 0x7F800000
FORMATS = [Format.WINDOW64, Format.FP32, Format.INT32]
SPECIAL = [
    0,
    1,
    2,
    3,
    0x400000,
    0x7FFFFF,
    0x800000,
    0x800001,
    0xFFFFFF,
    0x1000000,
    0x1800001,
    0x33800000,
    0x33800001,
    0x3F7FFFFF,
    0x3F800000,
    0x3F800001,
    0x3FFFFFFF,
    0x4B7FFFFF,
    0x4B800000,
    0x4B800001,
    0x7E800000,
    0x7F000000,
    0x7F7FFFFE,
    0x7F7FFFFF,
    INF,
    INF + 1,
    NAN,
    0x7FFFFFFF,
]
SPECIAL = np.array(SPECIAL + [pattern | 1 << 31 for pattern in SPECIAL], dtype=np.uint32)


@dataclass
class Elements:
    """What goes into a lane: arrays, one entry per cycle."""

    format: np.ndarray
    fraction: np.ndarray
    operand: np.ndarray
    include: np.ndarray
    first: np.ndarray
    accumulator: np.ndarray
    poison: np.ndarray

    @classmethod
    def of(cls, format, operand, *, fraction=44, include=True, first=False, accumulator=0, poison=False):
        columns = np.broadcast_arrays(
            format,
            fraction,
            np.asarray(operand, dtype=np.uint32),
            include,
            first,
            np.asarray(accumulator, dtype=np.int64),
            poison,
        )
        return cls(*(column.ravel() for column in columns))

    def __add__(self, other):
        return Elements(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))

    def shuffled(self, rng):
        order = rng.permutation(self.format.size)
        return Elements(*(getattr(self, f.name)[order] for f in fields(self)))

    def expected(self):
        """What the models say comes out: sum (accumulator, poison), result, flushed."""
        size = self.format.size
        accumulator, result = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.uint32)
        poison, flushed = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        keys = np.stack([self.format, self.fraction, self.include, self.first])
        for format, fraction, include, first in np.unique(keys, axis=1).T.tolist():
            at = np.flatnonzero(np.equal(keys.T, [format, fraction, include, first]).all(axis=1))
            limit, flushes = model.exponent_limit(fraction), []
            stored = model.Stored(self.accumulator[at], self.poison[at])
            options = {"fraction": fraction, "limit": limit, "include": include, "first": first}
            total, count = model.accumulate(format, stored, self.operand[at], **options)
            accumulator[at], poison[at] = total
            result[at] = model.result(format, total, fraction)
            if format == Format.WINDOW64 and include:
                flushes = model.window64.to_fixed(self.operand[at], fraction, limit)[2]
                assert flushes.sum() == count
                flushed[at] = flushes
        sums = accumulator.astype(np.uint64).astype(object) | poison.astype(object) << 64
        return {"sum": sums.tolist(), "result": result.tolist(), "flushed": flushed.astype(int).tolist()}


def run(elements: Elements, valid=True, wide=None, half_width=False) -> dict[str, list[int]]:
    """What a lane makes of them, each output taken at its own time. `wide`: 64-bit terms."""
    dut, size = hw.numeric.lane.Lane(half_width=half_width), elements.format.size
    limits = [model.exponent_limit(fraction) for fraction in elements.fraction.tolist()]
    columns = [
        (dut.format, elements.format),
        (dut.fraction, elements.fraction),
        (dut.operand, elements.operand),
        (dut.include, elements.include),
        (dut.first, elements.first),
        (dut.limit, np.array(limits)),
    ]
    columns = [(port, column.astype(int).tolist()) for port, column in columns]
    stored = elements.accumulator.astype(np.uint64).astype(object) | elements.poison.astype(object) << 64
    stored = [0] * Lane.READ_AT + stored.tolist()
    times = {"sum": Lane.WRITE_AT, "result": Lane.RESULT_AT, "flushed": Lane.FLUSHED_AT}
    seen = {name: [] for name in times}

    async def bench(ctx):
        for cycle in range(size + max(times.values())):
            for name, at in times.items():
                if at <= cycle < at + size:
                    seen[name].append(ctx.get(getattr(dut, name)))
            if cycle < size:
                for port, column in columns:
                    ctx.set(port, column[cycle])
            ctx.set(dut.valid, valid and cycle < size)
            ctx.set(dut.stored, stored[cycle] if cycle < len(stored) else (1 << 65) - 1)
            at = cycle - Lane.READ_AT
            ctx.set(dut.wide, int(wide[at]) % 2**64 if wide is not None and 0 <= at < size else 0)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


def check(elements: Elements, seen=None, compared=None):
    """Compare what a lane makes of elements with the models. `compared` is by default 1 for each of them."""
    seen, expected = seen or run(elements), elements.expected()
    for name, values in expected.items():
        for k, (left, right) in enumerate(zip(seen[name], values, strict=True)):
            ignored = compared is not None and not compared[k]
            assert ignored or left == right, f"{name} {left:#x}, not {right:#x}: " + ", ".join(
                f"{f.name} {int(getattr(elements, f.name)[k]):#x}" for f in fields(elements)
            )


def patterns(rng, count, low=0, high=256):
    """Random float32 patterns with biased exponents in [low, high), many with few mantissa bits, for ties."""
    exponent = rng.integers(low, high, count)
    mantissa = rng.integers(0, 1 << 23, count) & -1 << rng.integers(0, 24, count)
    return (rng.integers(0, 2, count) << 31 | exponent << 23 | mantissa).astype(np.uint32)


def sums(rng, count):
    """Random sums of every length up to what 32 terms can reach, many halfway between two results."""
    length = rng.integers(0, 63, count)
    value = rng.integers(0, 1 << 62, count) >> (62 - length)
    value &= -1 << np.maximum(length - rng.integers(22, 28, count), 0)
    value += rng.integers(-1, 2, count)
    return np.where(rng.integers(0, 2, count), -value, value)


def pairs(rng, count):
    """Pairs of float32 patterns: all special ones, and pairs whose exponents differ by no more than matters."""
    left, right = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    near = patterns(rng, count)
    exponent = np.clip((near >> 23 & 0xFF).astype(np.int64) + rng.integers(-27, 28, count), 0, 255)
    close = patterns(rng, count) & 0x807FFFFF | (exponent << 23).astype(np.uint32)
    almost = (near ^ 1 << 31) + rng.integers(0, 3, count).astype(np.uint32)
    return np.concatenate([left, near, near]), np.concatenate([right, close, almost])


def window64_elements(rng, fraction, count):
    limit = model.exponent_limit(fraction)
    edge = np.array([e << 23 | m for e in (limit - 1, limit, limit + 1) for m in (0, 1, 0x7FFFFF)], dtype=np.uint32)
    last = 150 - fraction  # exponent whose last mantissa bit is bit 0
    half = np.clip(np.array([last - 25, last - 24, last - 23]), 0, 254).repeat(3) << 23
    operand = np.concatenate(
        [
            SPECIAL,
            edge,
            edge | 1 << 31,
            half + np.tile([0, 1, 0x400000], 3),
            patterns(rng, count, int(np.clip(last - 26, 0, limit - 1)), limit),
        ]
    ).astype(np.uint32)
    return Elements.of(
        Format.WINDOW64,
        operand,
        fraction=fraction,
        accumulator=sums(rng, operand.size),
        poison=rng.integers(0, 8, operand.size) == 0,
    )


def test_outputs_keep_their_bounds():
    assert Lane.READ_AT <= 2
    assert Lane.WRITE_AT - Lane.READ_AT <= 7
    assert Lane.RESULT_AT <= 11


@pytest.mark.parametrize("fraction", [-126, -70, -69, 0, 1, 44, 58, 100, 125, 126, 127, 140, 148, 149])
def test_window64_adds_the_nearest_integer_and_rounds_the_sum_once(fraction):
    check(window64_elements(np.random.default_rng(fraction + 200), fraction, 250))


@pytest.mark.parametrize("fraction", [-126, 44, 126, 137, 149])
def test_window64_result_is_nearest_even_up_to_infinity_and_down_to_subnormals(fraction):
    edges = [s * ((1 << p) + d) for p in range(63) for d in (-1, 0, 1) for s in (1, -1)]
    edges += [(1 << 63) - 1, -(1 << 63)]
    total = np.concatenate([edges, sums(np.random.default_rng(3), 300)])
    check(Elements.of(Format.WINDOW64, 0, fraction=fraction, accumulator=total))


def test_fp32_adds_as_numpy_does():
    stored, operand = pairs(np.random.default_rng(4), 700)
    check(Elements.of(Format.FP32, operand, accumulator=stored.astype(np.int64)))


def test_int32_adds_modulo_two_to_the_32_whatever_stands_above():
    rng = np.random.default_rng(5)
    stored = np.concatenate([rng.integers(-(1 << 63), (1 << 63) - 1, 200), [0xFFFFFFFF, 0x7FFFFFFF, 0]])
    check(Elements.of(Format.INT32, rng.integers(0, 1 << 32, stored.size), accumulator=stored & 0xFFFFFFFF))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_first_forgets_what_is_stored_and_the_excluded_add_nothing(first, include):
    rng = np.random.default_rng(6)
    for format in FORMATS:
        stored = sums(rng, SPECIAL.size) if format == Format.WINDOW64 else rng.permutation(SPECIAL).astype(np.int64)
        if not include:  # what is stored has been through a lane
            stored = np.where(stored & 0x7FFFFFFF > INF, NAN, stored) if format == Format.FP32 else stored
        poison = (format == Format.WINDOW64) & (rng.integers(0, 2, SPECIAL.size) == 1)
        check(Elements.of(format, SPECIAL, include=include, first=first, accumulator=stored, poison=poison))


def mixture(rng):
    """Elements of all formats of 32 bits, and of several jobs, in a random order."""
    stored, operand = pairs(rng, 100)
    mixed = Elements.of(Format.FP32, operand[-600:], accumulator=stored[-600:].astype(np.int64))
    mixed += Elements.of(Format.INT32, operand[-400:], accumulator=stored[-400:].astype(np.int64))
    for fraction in (-126, 44, 149):
        mixed += window64_elements(rng, fraction, 100)
    mixed = mixed.shuffled(rng)
    mixed.include = rng.integers(0, 8, mixed.format.size) > 0
    mixed.first = rng.integers(0, 8, mixed.format.size) == 0
    stale = (mixed.format == Format.FP32) & (mixed.accumulator & 0x7FFFFFFF > INF)
    mixed.accumulator[stale] = NAN
    return mixed


def test_formats_and_jobs_mix_cycle_by_cycle():
    check(mixture(np.random.default_rng(7)))


def test_a_lane_that_knows_half_width_formats_adds_the_others_as_a_lane_that_does_not():
    """Elements of half-width formats come between them; their sums are compared elsewhere."""
    rng = np.random.default_rng(7)
    mixed = mixture(rng)
    is_half = rng.integers(0, 2, mixed.format.size) == 1
    with_half = np.where(is_half, rng.choice([Format.BF16, Format.FP16], is_half.size), mixed.format)
    check(mixed, run(replace(mixed, format=with_half), half_width=True), compared=~is_half)


def test_flushed_is_silent_without_valid():
    elements = Elements.of(Format.WINDOW64, [1, 2, 3, 0x7FFFFF], fraction=0)
    assert elements.expected()["flushed"] == [1] * 4
    assert run(elements, valid=False)["flushed"] == [0] * 4


@pytest.mark.parametrize("format", FORMATS)
def test_element_may_be_read_again_once_it_is_written(format):
    """32 contributions to as few elements as the loop allows, back to back, through one memory, without a bubble."""
    rng, width = np.random.default_rng(8), Lane.WRITE_AT - Lane.READ_AT
    payloads, stored = np.stack([patterns(rng, width, 90, 140) for _ in range(32)]), None
    for k, payload in enumerate(payloads):
        stored, _ = model.accumulate(
            format, stored, payload, fraction=44, limit=model.exponent_limit(44), include=True, first=k == 0
        )
    dut, memory, results = Lane(), [(1 << 65) - 1] * width, []

    async def bench(ctx):
        for cycle in range(payloads.size + Lane.WRITE_AT):
            if cycle >= Lane.WRITE_AT:
                memory[(cycle - Lane.WRITE_AT) % width] = ctx.get(dut.sum)
                results.append(ctx.get(dut.result))
            if cycle < payloads.size:
                ctx.set(dut.operand, int(payloads.flat[cycle]))
            ctx.set(dut.first, cycle < width)
            if cycle >= Lane.READ_AT:
                ctx.set(dut.stored, memory[(cycle - Lane.READ_AT) % width])
            await ctx.tick()

    async def job(ctx):
        for port, value in (
            (dut.format, format),
            (dut.fraction, 44),
            (dut.limit, model.exponent_limit(44)),
            (dut.include, 1),
        ):
            ctx.set(port, value)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(job)
    simulator.add_testbench(bench)
    simulator.run()
    assert results[-width:] == model.result(format, stored, 44).tolist()


class RoundsHalfUp(Rounder):
    """Broken: takes every tie for more than half."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.sound = sound = Rounder()
        for name in ("top", "sign", "exponent", "negative", "nan", "infinite"):
            m.d.comb += getattr(sound, name).eq(getattr(self, name))
        m.d.comb += [sound.rest.eq(1), self.value.eq(sound.value)]
        return m


class ForgetsWhatFellOut(Aligner):
    """Broken: takes every term just above half for a tie."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.sound = sound = Aligner()
        m.d.comb += [
            sound.term.eq(self.term),
            sound.distance.eq(self.distance),
            self.magnitude.eq(sound.magnitude),
            self.guard.eq(sound.guard),
            self.sticky.eq(0),
        ]
        return m


@pytest.mark.parametrize("mutant", [RoundsHalfUp, ForgetsWhatFellOut])
def test_check_fails_on_a_lane_that_rounds_wrongly(monkeypatch, mutant):
    monkeypatch.setattr(hw.numeric.lane, mutant.__base__.__name__, mutant)
    with pytest.raises(AssertionError, match="not 0x"):
        check(window64_elements(np.random.default_rng(244), 44, 250))


def test_check_fails_on_fp32_that_rounds_half_up(monkeypatch):
    monkeypatch.setattr(hw.numeric.lane, "Rounder", RoundsHalfUp)
    with pytest.raises(AssertionError, match="not 0x"):
        check(Elements.of(Format.FP32, [0x3F800000], accumulator=[0x4B800000]))


def wide_terms(seed=1, size=600):
    """Sums and terms of either sign and any size, with poison in each."""
    rng = np.random.default_rng(seed)
    numbers = lambda: rng.integers(-1 << 61, 1 << 61, size) >> rng.integers(0, 62, size)
    some = lambda: rng.random(size) < 0.2
    wide = np.where(some(), model.POISON, numbers())
    elements = Elements.of(
        Format.WINDOW64,
        rng.integers(0, 1 << 32, size),
        include=False,
        first=some(),
        accumulator=numbers(),
        poison=some(),
    )
    return elements, wide


def check_wide():
    elements, wide = wide_terms()
    seen = run(elements, wide=wide)
    stored = model.Stored(np.where(elements.first, 0, elements.accumulator), elements.poison & ~elements.first)
    total = model.accumulate_uplink(Format.WINDOW64, stored, wide, first=False)
    assert (
        seen["sum"] == (total.accumulator.astype(np.uint64).astype(object) | total.poison.astype(object) << 64).tolist()
    )
    assert seen["result"] == model.result(Format.WINDOW64, total, 44).tolist()
    assert not any(seen["flushed"])


def test_a_wide_term_is_added_as_it_is_and_poison_stays():
    check_wide()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.wide == POISON", "0"),
        ("locator.rejects | poisons", "locator.rejects"),
        ("Mux(poisons, 0, self.wide)", "self.wide"),
        (" | aligned.wide)", ")"),
        ("wide=fitted.wide", "wide=self.wide"),
    ],
)
def test_a_mutant_with_wide_terms_is_noticed(sound, wrong, monkeypatch):
    monkeypatch.setattr(hw.numeric.lane, "Lane", mutant(hw.numeric.lane, sound, wrong).Lane)
    with pytest.raises(AssertionError):
        check_wide()

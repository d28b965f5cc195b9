"""What the gateware derives from the formats' descriptions, for all numbers that 4 bits can be."""

import numpy as np
import pytest
from amaranth.hdl import Const, Module, Signal, Value
from amaranth.sim import Simulator

from hw.numeric.formats import (
    adds_as,
    can_be_job_format,
    element_exponents,
    format_of_job,
    fraction_is_good,
    half_exponents,
    has_wide_uplink,
    is_half,
    is_rejected,
    is_wide,
    lane_format,
    uplink_format,
)
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS as ALL_FORMATS
from iswitch.wire.formats import FRACTION_MAX, FRACTION_MIN, Arithmetic, job_format

NUMBERS = range(16)
BUILDS = pytest.mark.parametrize("half_width", [False, True])


def formats(half_width):
    return {number: known for number, known in ALL_FORMATS.items() if half_width or not known.is_half_width}


def values_of(function, numbers=NUMBERS, width=4):
    """Return what a function of a signal is for each number."""
    m, source, found = Module(), Signal(width), []
    result = Value.cast(function(source))
    output = Signal(len(result))
    m.d.comb += output.eq(result)

    async def read(ctx):
        for number in numbers:
            ctx.set(source, number)
            found.append(ctx.get(output))

    simulator = Simulator(m)
    simulator.add_testbench(read)
    simulator.run()
    return found


def those(holds, half_width=True):
    known = formats(half_width)
    return [int(number in known and holds(known[Format(number)])) for number in NUMBERS]


@BUILDS
def test_properties_are_those_of_the_descriptions(half_width):
    build = {"half_width": half_width}
    assert values_of(lambda n: can_be_job_format(n, **build)) == those(lambda d: d.job, half_width)
    wide_uplink = those(lambda d: d.job and ALL_FORMATS[d.uplink].element.itemsize == 8, half_width)
    assert values_of(lambda n: has_wide_uplink(n, **build)) == wide_uplink
    assert values_of(is_wide) == those(lambda d: d.element.itemsize == 8)
    assert values_of(is_half) == those(lambda d: d.element.itemsize == 2)


@BUILDS
@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_each_format_of_a_job_has_one_arithmetic(arithmetic, half_width):
    added = values_of(lambda format: adds_as(format, arithmetic, half_width=half_width))
    assert added == those(lambda d: d.job and d.arithmetic is arithmetic, half_width)


@BUILDS
def test_formats_are_mapped_and_other_numbers_stay(half_width):
    known = formats(half_width)
    uplinks = values_of(lambda number: uplink_format(number, half_width=half_width))
    assert uplinks == [known[n].uplink if n in known else n for n in NUMBERS]
    for own in known:
        if known[own].job and known[own].uplink == Format.FIXED64:
            sums = values_of(lambda number, own=own: format_of_job(number, Const(own, 4), half_width=half_width))
            assert sums == [job_format(n, own) if n in known else n for n in NUMBERS]
    assert values_of(lane_format) == [Format.WINDOW64 if n == Format.FIXED64 else n for n in NUMBERS]


@pytest.mark.parametrize("format", [Format.WINDOW64, Format.FP32, Format.INT32, Format.BF16, Format.FP16])
def test_a_half_width_job_has_the_fraction_bits_of_its_description(format):
    fractions = range(FRACTION_MIN, FRACTION_MAX + 1)
    patterns = [fraction & 0x1FF for fraction in fractions]
    good = values_of(lambda fraction: fraction_is_good(Const(format, 4), fraction.as_signed()), patterns, 9)
    assert good == [int(fraction in ALL_FORMATS[format].fractions) for fraction in fractions]


def test_exponents_are_those_of_the_elements():
    assert len(element_exponents(Signal(512))) == 16
    numbers = [1.0, -1.0, 2.0**127, 0.0]
    words = [int.from_bytes(np_bytes(a) + np_bytes(b), "little") for a, b in zip(numbers, numbers[::-1], strict=True)]
    assert values_of(lambda data: element_exponents(data)[0], words, 64) == [127, 127, 254, 0]
    assert values_of(lambda data: element_exponents(data)[1], words, 64) == [0, 254, 127, 127]


@pytest.mark.parametrize("format", [Format.WINDOW64, Format.BF16, Format.FP16])
def test_exponents_of_halves_are_those_of_binary32_as_far_as_they_can_reject(format):
    """Of a finite binary16 number, the exponent only has to be below all limits of such a job."""
    words = np.random.default_rng(5).integers(0, 1 << 32, 200, dtype=np.uint32)
    words[:8] = [0, 0xFFFFFFFF, 0x7C007BFF, 0x7BFF7C00, 0xFC000001, 0x00017E00, 0x80008000, 0x7F807F7F]
    data = words.astype("<u4")
    if format == Format.WINDOW64:
        expected = (data >> 23 & 0xFF).tolist()
    elif format == Format.BF16:
        expected = np.maximum(data >> 23 & 0xFF, data >> 7 & 0xFF).tolist()
    else:
        finite = np.isfinite(data.view("<f2").reshape(-1, 2)).all(axis=1)
        expected = np.where(finite, 0, 255).tolist()
    pairs = [
        values_of(lambda word, k=k: half_exponents(word, Const(format, 4))[0][k], words.tolist(), 32) for k in range(2)
    ]
    found = [max(pair) for pair in zip(*pairs, strict=True)]
    if format == Format.FP16:
        lowest_limit = 185 - max(ALL_FORMATS[format].fractions)
        found = [number if number >= lowest_limit else 0 for number in found]
    assert found == expected


def np_bytes(number):
    return ALL_FORMATS[Format.FP32].element.type(number).tobytes()


@pytest.mark.parametrize(("exponent", "limit"), [(255, 255), (254, 255), (200, 200), (199, 200), (255, 200), (0, 0)])
def test_an_exponent_is_rejected_at_the_limit_or_above(exponent, limit):
    rejected = values_of(
        lambda format: is_rejected(format, Signal(8, init=exponent), Signal(8, init=limit), half_width=True)
    )
    window, other = int(exponent >= limit), int(exponent == 255)
    rules = dict.fromkeys((Format.WINDOW64, Format.BF16, Format.FP16), window) | {Format.FP32: other}
    assert rejected == [rules.get(number, 0) for number in NUMBERS]

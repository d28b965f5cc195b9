"""What the gateware derives from the formats' descriptions, for all numbers that 4 bits can be."""

import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.sim import Simulator

from hw.numeric.formats import (
    adds_as,
    can_be_job_format,
    element_exponents,
    format_of_job,
    has_wide_uplink,
    is_rejected,
    is_wide,
    uplink_format,
)
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS as ALL_FORMATS
from iswitch.wire.formats import Arithmetic, job_format

NUMBERS = range(16)
FORMATS = {number: description for number, description in ALL_FORMATS.items() if not description.is_half_width}


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


def those(holds):
    return [int(number in FORMATS and holds(FORMATS[Format(number)])) for number in NUMBERS]


def test_properties_are_those_of_the_descriptions():
    assert values_of(can_be_job_format) == those(lambda d: d.job)
    assert values_of(is_wide) == those(lambda d: d.element.itemsize == 8)
    assert values_of(has_wide_uplink) == those(lambda d: d.job and FORMATS[d.uplink].element.itemsize == 8)


@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_each_format_of_a_job_has_one_arithmetic(arithmetic):
    added = values_of(lambda format: adds_as(format, arithmetic))
    assert added == those(lambda d: d.job and d.arithmetic is arithmetic)


def test_formats_are_mapped_and_other_numbers_stay():
    assert values_of(uplink_format) == [FORMATS[n].uplink if n in FORMATS else n for n in NUMBERS]
    assert values_of(format_of_job) == [job_format(n, Format.WINDOW64) if n in FORMATS else n for n in NUMBERS]


def test_exponents_are_those_of_the_elements():
    assert len(element_exponents(Signal(512))) == 16
    numbers = [1.0, -1.0, 2.0**127, 0.0]
    words = [int.from_bytes(np_bytes(a) + np_bytes(b), "little") for a, b in zip(numbers, numbers[::-1], strict=True)]
    assert values_of(lambda data: element_exponents(data)[0], words, 64) == [127, 127, 254, 0]
    assert values_of(lambda data: element_exponents(data)[1], words, 64) == [0, 254, 127, 127]


def np_bytes(number):
    return FORMATS[Format.FP32].element.type(number).tobytes()


@pytest.mark.parametrize(("exponent", "limit"), [(255, 255), (254, 255), (200, 200), (199, 200), (255, 200), (0, 0)])
def test_an_exponent_is_rejected_at_the_limit_or_above(exponent, limit):
    rejected = values_of(lambda format: is_rejected(format, Signal(8, init=exponent), Signal(8, init=limit)))
    window, other = int(exponent >= limit), int(exponent == 255)
    assert rejected == [{Format.WINDOW64: window, Format.FP32: other}.get(number, 0) for number in NUMBERS]

"""The registering helper: what it refuses, and what moves on."""

import pytest
from amaranth.hdl import Fragment, Module, Signal
from amaranth.lib import data
from amaranth.sim import Simulator

from hw.stream.stages import Stages


class Split(data.Struct):
    number: 4
    tag: 2


class Doubled(data.Struct):
    number: 5
    tag: 2


@pytest.fixture
def m():
    m = Module()
    yield m
    Fragment.get(m, None)


def test_fields_arrive_one_cycle_per_record_and_the_unnamed_move_on(m):
    number, tag = Signal(4), Signal(2)
    pipe = Stages(m, (Split, Doubled))
    split = pipe.then(Split, number=number, tag=tag)
    doubled = pipe.then(Doubled, number=split.number << 1)
    seen = []

    async def bench(ctx):
        for k in range(6):
            seen.append((ctx.get(doubled.number), ctx.get(doubled.tag)))
            ctx.set(number, k + 1)
            ctx.set(tag, k)
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen[2:] == [(2, 0), (4, 1), (6, 2), (8, 3)]


def test_record_out_of_turn_wrong(m):
    pipe = Stages(m, (Split,))
    with pytest.raises(ValueError, match="Doubled is out of turn"):
        pipe.then(Doubled, number=0, tag=0)
    pipe = Stages(m, (Split,))
    pipe.then(Split, number=0, tag=0)
    with pytest.raises(ValueError, match="Split is out of turn"):
        pipe.then(Split)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"number": 0}, r"lacks fields \['tag'\]"),
        ({"number": 0, "tag": 0, "colour": 0}, r"has no fields \['colour'\]"),
        ({"number": Signal(5), "tag": 0}, "has 4 bits for number, not 5"),
    ],
)
def test_fields_wrong(m, fields, message):
    with pytest.raises(ValueError, match=message):
        Stages(m, (Split,)).then(Split, **fields)

"""The first check that fails, against a search in Python."""

from itertools import product

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.decide.rules.first_failing import first_failing
from iswitch.wire import Reason
from sim.bench.stream import Bench


class Row(wiring.Component):
    def __init__(self, names):
        self.names = names
        super().__init__({"good": In(len(names)), "fails": Out(1), "name": Out(Reason)})

    def elaborate(self, platform):
        m = Module()
        fails, name = first_failing(zip(self.good, self.names, strict=True))
        m.d.comb += [self.fails.eq(fails), self.name.eq(name)]
        return m


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8])
def test_of_those_that_fail_the_first_gives_its_name(count):
    names = list(Reason)[1 : count + 1]
    dut = Row(names)

    async def bench(ctx):
        for case in product((0, 1), repeat=count):
            ctx.set(dut.good, sum(bit << k for k, bit in enumerate(case)))
            assert ctx.get(dut.fails) == (0 in case)
            assert all(case) or ctx.get(dut.name) == names[case.index(0)]

    Bench(dut).drive(bench)

import gc
import sys

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from sim.bench.unraisable import without_discarded_testbenches


def discard_a_waiting_testbench():
    done, ticks = Signal(), Signal(8)
    m = Module()
    m.d.sync += ticks.eq(ticks + 1)

    async def wait(ctx):
        await ctx.tick().until(done)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(wait, background=True)
    simulator.run_until(5e-6)
    del simulator
    gc.collect()


class FailsWhenDiscarded:
    def __del__(self):
        raise ValueError("while it was discarded")


@pytest.fixture
def errors(monkeypatch):
    """Types of the errors that cannot be raised, as a hook behind `without_discarded_testbenches` sees them."""
    gc.collect()
    errors = []
    hook = without_discarded_testbenches(lambda each: errors.append(type(each.exc_value)))
    monkeypatch.setattr(sys, "unraisablehook", hook)
    return errors


def test_a_discarded_testbench_is_not_reported(errors):
    discard_a_waiting_testbench()
    assert errors == []


def test_every_other_error_is_reported(errors):
    FailsWhenDiscarded()
    assert errors == [ValueError]

"""The harness of proofs: what it reports, and that it proves nothing for lack of traces."""

import re

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sim.prove.harness import Harness
from sim.prove.proof import Proof, ProofError


class Saturating(wiring.Component):
    """Counts to 3 and stays there. `kept`, a data register, has no reset."""

    up: In(1)
    count: Out(2)
    kept: Out(4)

    def elaborate(self, platform):
        m = Module()
        full, data = Signal(), Signal(4, reset_less=True)
        m.d.comb += [full.eq(self.count == 3), self.kept.eq(data)]
        with m.If(full & self.up):
            m.d.sync += data.eq(0)
        m.d.sync += self.count.eq(self.count + (self.up & ~full))
        return m


def proof(build, **options) -> Proof:
    def harness(_):
        h = Harness(Saturating())
        h.free_inputs()
        build(h)
        return h

    return Proof(law="a law", part=wiring, harness=harness, mutants=(), **{"depth": 6, **options})


def test_a_law_that_holds_is_proved_in_some_cycles_and_in_all():
    def never_falls(h):
        before = Signal(2)
        h.m.d.sync += before.eq(h.dut.count)
        h.require(h.dut.count >= before)
        h.reach(h.inner("full"))

    proof(never_falls).prove()
    proof(never_falls, induction=1).prove()


def test_a_law_that_fails_is_reported_with_its_line_and_the_inputs():
    with pytest.raises(ProofError, match=r"test_harness\.py:\d+ does not hold in cycle 4") as raised:
        proof(lambda h: h.require(h.dut.count != 3)).prove()
    assert re.search(r"up: . 1 1 1 .", str(raised.value))


def test_a_law_that_holds_for_a_while_fails_by_induction():
    def holds_at_first(h):
        cycles = Signal(4)
        h.m.d.sync += cycles.eq(cycles + 1)
        h.require(cycles != 9)

    proof(holds_at_first).prove()
    with pytest.raises(ProofError, match="does not hold"):
        proof(holds_at_first, induction=2).prove()


def test_a_state_that_no_trace_reaches_is_an_error():
    with pytest.raises(ProofError, match=r"no trace of 6 cycles reaches .*test_harness\.py:\d+"):
        proof(lambda h: h.reach((h.dut.count == 3) & ~h.inner("full"))).prove()


def test_data_registers_hold_anything_after_the_reset():
    with pytest.raises(ProofError, match="does not hold"):
        proof(lambda h: h.require(h.dut.kept == 0)).prove()


def test_a_constant_does_not_change():
    def stays(h):
        value, before, known = h.constant(3, "value"), Signal(3), Signal()
        h.m.d.sync += [before.eq(value), known.eq(1)]
        h.require(~known | (value == before))
        h.reach(value == 5)

    proof(stays, induction=1).prove()


def test_an_unknown_variable_inside_is_an_error():
    with pytest.raises(ValueError, match=r"Harness inner path must name local variables of .* not 'empty'"):
        proof(lambda h: h.inner("empty")).prove()

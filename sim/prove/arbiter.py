"""The arbiter of packet streams: complete packets, unchanged, and no input waits for ever."""

from typing import Any

from amaranth.hdl import Const, Signal
from amaranth.lib import data

import hw.stream.arbiter
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

INPUTS = 3
WORD = data.StructLayout({"last": 1, "data": 2})


def with_sources(part: Any) -> Harness:
    """Return an arbiter whose inputs keep the rule of streams."""
    h = Harness(part.PacketArbiter(WORD, inputs=INPUTS))
    h.free_inputs()
    for i in h.dut.i:
        h.assume(h.holds(i))
    return h


def packets_stay_whole(part: Any) -> Harness:
    """Compare each word with the input that the arbiter says it shows."""
    h = with_sources(part)
    o, within, source = h.dut.o, Signal(), Signal(range(INPUTS))
    with h.m.If(o.valid):
        h.m.d.sync += [within.eq(~(o.ready & o.payload.last)), source.eq(h.dut.grant)]
    h.require(h.holds(o))
    h.require(~within | (h.dut.grant == source))
    h.require(within == h.inner("within"))
    h.require(~within | (source == h.inner("served")))
    h.require(source < INPUTS)
    h.require(h.inner("served") < INPUTS)
    for number, i in enumerate(h.dut.i):
        shown = o.valid & (h.dut.grant == number)
        h.require(~shown | (i.valid & (i.payload.as_value() == o.payload.as_value())))
        h.require(h.taken(i) == (h.taken(o) & (h.dut.grant == number)))
        h.require(~i.valid | o.valid | within)
        h.reach(within & (source == number) & (i.payload.data == 3))
    return h


def no_input_starves(part: Any) -> Harness:
    """Count the packets of other inputs that leave while one input, chosen by the solver, waits."""
    h = with_sources(part)
    h.assume(h.dut.deferred == 0)
    o, waits_for = h.dut.o, h.constant(range(INPUTS), "waits_for")
    h.assume(waits_for < INPUTS)
    waits, passed = Signal(), Signal(range(INPUTS + 1))
    h.m.d.comb += waits.eq(Const(0))
    for number, i in enumerate(h.dut.i):
        with h.m.If(waits_for == number):
            h.m.d.comb += waits.eq(i.valid & ~(o.valid & (h.dut.grant == number)))
    with h.m.If(~waits):
        h.m.d.sync += passed.eq(0)
    with h.m.Elif(h.taken(o) & o.payload.last & (passed != INPUTS)):
        h.m.d.sync += passed.eq(passed + 1)
    h.require(passed <= INPUTS - 1)
    # Each packet that passes brings the search nearer to the input that waits.
    within, served, distance = h.inner("within"), h.inner("served"), Signal(range(INPUTS))
    h.m.d.comb += distance.eq((waits_for + INPUTS - served) % INPUTS)
    h.require((passed == 0) | (passed + distance <= INPUTS - within))
    h.require((passed == 0) | (distance != 0))
    h.require(served < INPUTS)
    h.reach(passed == INPUTS - 1)
    return h


def deferred_inputs_go_last(part: Any) -> Harness:
    """Check, where a packet begins, that no input that is not deferred has a packet."""
    h = with_sources(part)
    others = [i.valid & ~h.dut.deferred[number] for number, i in enumerate(h.dut.i)]
    for number in range(INPUTS):
        begins = h.dut.o.valid & ~h.inner("within") & (h.dut.grant == number) & h.dut.deferred[number]
        for other in others:
            h.require(~(begins & other))
        h.reach(begins)
    h.require(h.inner("served") < INPUTS)
    return h


PROOFS = [
    Proof(
        law="packets leave the arbiter unchanged and are not interleaved, and between packets no cycle is lost",
        part=hw.stream.arbiter,
        harness=packets_stay_whole,
        depth=10,
        induction=2,
        mutants=(
            ("within.eq(~(self.o.ready & self.o.payload.last))", "within.eq(~self.o.payload.last)"),
            ("self.o.ready & (self.grant == number)", "self.o.ready"),
            ("Mux((valid & ~self.deferred).any(), valid & ~self.deferred, valid)", "valid & ~self.deferred"),
        ),
    ),
    Proof(
        law="an input of the arbiter waits for at most one packet of each other input",
        part=hw.stream.arbiter,
        harness=no_input_starves,
        depth=12,
        induction=3,
        mutants=(("(number + 1) % self.inputs", "0"), ("candidates, (number + 1)", "candidates, (number + 2)")),
    ),
    Proof(
        law="a deferred input of the arbiter begins a packet only while no other input has one",
        part=hw.stream.arbiter,
        harness=deferred_inputs_go_last,
        depth=8,
        induction=1,
        mutants=(("Mux((valid & ~self.deferred).any(), valid & ~self.deferred, valid)", "valid"),),
    ),
]

"""The arbiter of packet streams: complete packets, unchanged, and no input waits for ever."""

from functools import partial
from typing import Any

from amaranth.hdl import Const, Mux, Signal
from amaranth.lib import data

import hw.stream.arbiter
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

INPUTS = 3
TURN_WORDS = 2
WORD = data.StructLayout({"last": 1, "data": 2})


def with_sources(part: Any, turn_words: int = 1) -> Harness:
    """Return an arbiter whose inputs keep the rule of streams."""
    h = Harness(part.PacketArbiter(WORD, inputs=INPUTS, turn_words=turn_words))
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
    h.require(~within | ~o.valid | (h.dut.grant == source))
    h.require(within == h.inner("within"))
    h.require(~within | (source == h.inner("served")))
    h.require(source < INPUTS)
    h.require(h.inner("served") < INPUTS)
    h.require(h.inner("has_turn") < INPUTS)
    for number, i in enumerate(h.dut.i):
        shown = o.valid & (h.dut.grant == number)
        h.require(~shown | (i.valid & (i.payload.as_value() == o.payload.as_value())))
        h.require(~i.ready | shown)
        h.require(h.taken(i) == (h.taken(o) & (h.dut.grant == number)))
        h.require(~i.valid | o.valid | within)
        h.reach(within & (source == number) & (i.payload.data == 3))
    return h


def no_input_starves(part: Any, turn_words: int = 1) -> Harness:
    """Count the packets of other inputs that leave while one input, chosen by the solver, waits."""
    h = with_sources(part, turn_words)
    h.assume(h.dut.deferred == 0)
    o, waits_for, most = h.dut.o, h.constant(range(INPUTS), "waits_for"), (INPUTS - 1) * turn_words
    h.assume(waits_for < INPUTS)
    waits, passed = Signal(), Signal(range(most + 2))
    h.m.d.comb += waits.eq(Const(0))
    for number, i in enumerate(h.dut.i):
        with h.m.If(waits_for == number):
            h.m.d.comb += waits.eq(i.valid & ~(o.valid & (h.dut.grant == number)))
    with h.m.If(~waits):
        h.m.d.sync += passed.eq(0)
    with h.m.Elif(h.taken(o) & o.payload.last & (passed != most + 1)):
        h.m.d.sync += passed.eq(passed + 1)
    h.require(passed <= most)
    # Each packet that passes takes words of a turn, and after each turn the search begins nearer to the input that
    # waits.
    within, served, has_turn, had = (h.inner(name) for name in ("within", "served", "has_turn", "had"))
    begins, distance, used = Signal(range(INPUTS)), Signal(range(INPUTS)), Signal(range(turn_words + 1))
    h.m.d.comb += [
        begins.eq(Mux(within, served, has_turn)),
        distance.eq((waits_for + INPUTS - begins) % INPUTS),
        used.eq(Mux(begins == served, had, 0)),
    ]
    h.require((passed == 0) | (passed + distance * turn_words <= most + used))
    h.require(served < INPUTS)
    h.require(has_turn < INPUTS)
    h.require(had < turn_words)
    h.reach(passed == most)
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
    h.require(h.inner("has_turn") < INPUTS)
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
            ("self.o.ready & chosen[number]", "self.o.ready"),
            ("i.valid & (~within | (served == number))", "i.valid & ~self.deferred[number]"),
        ),
    ),
    Proof(
        law="an input of the arbiter waits for at most one packet of each other input",
        part=hw.stream.arbiter,
        harness=no_input_starves,
        depth=12,
        induction=3,
        mutants=(
            ("Mux(self.grant == self.inputs - 1, 0, self.grant + 1)", "0"),
            ("(has_turn <= other)", "(has_turn < other)"),
        ),
    ),
    Proof(
        law=f"an input of an arbiter with turns of {TURN_WORDS} words waits for at most {TURN_WORDS} packets of each "
        "other input",
        part=hw.stream.arbiter,
        harness=partial(no_input_starves, turn_words=TURN_WORDS),
        depth=16,
        induction=3,
        mutants=(("Mux(ends, next_input, self.grant)", "self.grant"), ("Mux(full, had, had + 1)", "0")),
    ),
    Proof(
        law="a deferred input of the arbiter begins a packet only while no other input has one",
        part=hw.stream.arbiter,
        harness=deferred_inputs_go_last,
        depth=8,
        induction=1,
        mutants=(("Mux(self.deferred[one] == self.deferred[other], in_order, self.deferred[other])", "in_order"),),
    ),
]

"""The rule of streams on every component: what is offered stays until it is taken, also on streams inside."""

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from amaranth.lib import stream
from amaranth.lib.wiring import Component, Flow, In, Out

import hw.aggregate.sequencer
import hw.decide.gate
import hw.egress.link_gate
import hw.egress.output_port
import hw.egress.waiting_results
import hw.ingress.arbiter
import hw.ingress.packet_queue
import hw.ingress.parser
import hw.stream.bypass_fifo
import hw.stream.fifo
from iswitch.config import Config
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS", "keeps_the_rule"]

SMALL = Config(
    ports=2, bus_bits=64, members=2, jobs=2, window=1, elements=4, queue_bytes=4096, mac_entries=64, staleness=1
)


def streams(part: Component, flow: Flow) -> Iterator[Any]:
    """Return the streams of a component that go in or out and may stall."""
    for name, member in part.signature.members.items():
        if member.is_port or member.flow is not flow or not isinstance(member.signature, stream.Signature):
            continue
        if member.signature.always_ready or member.signature.always_valid:
            continue
        rest = [getattr(part, name)]
        while rest:
            item = rest.pop()
            if isinstance(item, list | tuple):
                rest.extend(item)
            else:
                yield item


def keeps_the_rule(make: Callable[[Any], Component], part: Any) -> Harness:
    """Return a component whose inputs keep the rule, with the rule as a property of its outputs and of those of all
    components inside. Each output of the component itself must be reached with an item that waits."""
    h = Harness(make(part))
    h.free_inputs()
    for item in streams(h.dut, In):
        h.assume(h.holds(item))
    for inside in h.parts():
        for item in streams(inside, Out):
            h.require(h.holds(item))
            if inside is h.dut:
                h.reach(item.valid & ~item.ready)
    return h


def output_port_holds(part: Any) -> Harness:
    """Return the output port with the rule as a property of `tx` alone. Its queues have proofs of their own."""
    h = Harness(dut := part.OutputPort(SMALL, port=0))
    h.free_inputs()
    h.require(h.holds(dut.tx))
    h.reach(dut.tx.valid & ~dut.tx.ready)
    return h


def rule_of(name: str, part: ModuleType, make: Callable[[Any], Component], depth: int, *mutants: tuple[str, str]):
    """Return the proof that a component keeps the rule."""
    return Proof(
        law=f"the {name} holds each item that it offers until the item is taken, also on the streams inside",
        part=part,
        harness=functools.partial(keeps_the_rule, make),
        depth=depth,
        mutants=mutants,
    )


PROOFS = [
    rule_of(
        "FIFO",
        hw.stream.fifo,
        lambda part: part.Fifo(8, depth=4),
        12,
        ("leaves.eq(filled & (~shown | self.o.ready))", "leaves.eq(filled)"),
    ),
    rule_of(
        "FIFO with a bypass",
        hw.stream.bypass_fifo,
        lambda part: part.BypassFifo(8, depth=3),
        12,
        ("held.eq(self.i.valid & ~self.o.ready)", "held.eq(0)"),
        ("Mux(held, oldest, ", "Mux(0, oldest, "),
    ),
    rule_of(
        "ingress queue",
        hw.ingress.packet_queue,
        lambda part: part.PacketQueue(bus_bits=64, depth=16, frame_bytes_max=72),
        20,
        ("moves.eq(~filled | self.o.ready)", "moves.eq(1)"),
    ),
    rule_of(
        "ports' arbiter",
        hw.ingress.arbiter,
        lambda part: part.Arbiter(ports=2, bus_bits=64, cycles_max=64),
        8,
        ("frames.valid & scans.valid", "frames.valid & scans.valid & ~shares.deferred.any()"),
    ),
    rule_of(
        "parser",
        hw.ingress.parser,
        lambda part: part.Parser(bus_bits=64, depth=4),
        12,
        ("leaves.eq(~held | self.o.ready)", "leaves.eq(1)"),
    ),
    rule_of(
        "gate",
        hw.decide.gate,
        lambda part: part.Gate(SMALL),
        12,
        ("verdict.works & ~handed)", "verdict.works & ~handed & ~self.contributions.ready)"),
    ),
    rule_of(
        "store of waiting results",
        hw.egress.waiting_results,
        lambda part: part.WaitingResults(SMALL),
        8,
        ("self.works.valid & has_place)", "self.works.valid & has_place & ~self.begins)"),
    ),
    rule_of(
        "aggregator's sequencer",
        hw.aggregate.sequencer,
        lambda part: part.Sequencer(SMALL, loop=5),
        10,
        (
            "self.results.valid.eq(self.works.valid & ~ahead_valid & offered.emit)",
            "self.results.valid.eq(self.works.valid & ~ahead_valid & offered.emit & (self.room != 0))",
        ),
    ),
    rule_of(
        "link gate",
        hw.egress.link_gate,
        lambda part: part.LinkGate(bus_bits=64),
        10,
        ("begins = first & ~offered", "begins = first"),
    ),
    Proof(
        law="the output port holds each word that it offers until the word is taken",
        part=hw.egress.output_port,
        harness=output_port_holds,
        depth=9,
        induction=1,
        mutants=(
            ("moves.eq(~self.tx.valid | self.tx.ready)", "moves.eq(1)"),
            (
                "with m.If(moves): m.d.sync += [self.tx.valid.eq(sends), self.tx.payload.eq(word)]",
                "m.d.sync += [self.tx.valid.eq(Mux(moves, sends, self.tx.valid)), self.tx.payload.eq(word)]",
            ),
        ),
    ),
]
"""The composer of results is not among these: its outputs cannot stall."""

"""Two clocks in a proof: every order of their edges, bits that arrive apart, and words that are read too early."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from sim.prove.clocks import ClocksHarness
from sim.prove.proof import Proof, ProofError


class Crossing(wiring.Component):
    """Two bits that `write` inverts at each of its edges, as `read` sees them, and a memory of both."""

    word: In(4)
    bits: Out(2)
    row: Out(4)

    def elaborate(self, platform):
        m = Module()
        both, there = Signal(2), Signal(2)
        m.d.write += both.eq(~both)
        m.submodules += FFSynchronizer(both, there, o_domain="read")
        m.submodules.memory = memory = Memory(shape=4, depth=2, init=[])
        put, get = memory.write_port(domain="write"), memory.read_port(domain="read")
        m.d.comb += [put.en.eq(1), put.data.eq(self.word), self.row.eq(get.data), self.bits.eq(there)]
        return m


def proof(build, dut=Crossing, **options) -> Proof:
    def harness(_):
        h = ClocksHarness(dut(), ("write", "read"))
        h.free_inputs()
        build(h)
        return h

    return Proof(law="a law", part=wiring, harness=harness, mutants=(), **{"depth": 8, **options})


def counted(h, domain):
    """Return the number of a domain's edges since its reset, at most 3."""
    edges = Signal(2, name=f"{domain}_edges")
    h.m.d.sync += edges.eq(edges + (h.edges[domain] & ~h.resets[domain] & (edges != 3)))
    return edges


def test_a_domain_changes_at_its_own_edges_only():
    def stays(h):
        h.require((counted(h, "write") != 0) | (h.inner("both") == 0))
        read = Signal()
        h.m.d.sync += read.eq(read | h.edges["read"])
        h.require(read | (h.inner("there") == 0))
        h.reach(h.inner("both") == 3)

    proof(stays).prove()


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("domains", [("write", "read"), ("read", "write")])
def test_the_edges_come_in_any_order(domains, others):
    one, other = domains
    proof(lambda h: h.reach((counted(h, one) == 2) & (counted(h, other) == others))).prove()


def test_bits_that_change_at_once_may_arrive_apart():
    with pytest.raises(ProofError, match="does not hold"):
        proof(lambda h: h.require((h.dut.bits == 0) | (h.dut.bits == 3))).prove()


def test_a_bit_arrives_before_the_next_edge_of_its_clock():
    def arrives(h):
        arrived, edges = h.path("there").arrived, counted(h, "write")
        just_now, both_before = Signal(), Signal(2)
        h.m.d.sync += [just_now.eq(h.edges["write"] & ~h.resets["write"]), both_before.eq(h.inner("both"))]
        h.require(~just_now | (arrived == both_before))
        h.reach((h.inner("both") == 3) & (arrived == 2))
        h.reach(just_now & (edges == 2))

    proof(arrives).prove()


def test_a_word_that_is_read_as_it_is_written_is_anything():
    def same_word(h, *, apart):
        read = Signal()
        h.m.d.sync += read.eq(read | h.edges["read"] & (counted(h, "write") != 0))
        h.assume(h.dut.word == 9)
        if apart:
            h.assume(~(h.edges["read"] & h.edges["write"]))
        h.require(~read | (h.dut.row == 9))

    proof(lambda h: same_word(h, apart=True)).prove()
    with pytest.raises(ProofError, match="does not hold"):
        proof(lambda h: same_word(h, apart=False)).prove()


@pytest.mark.parametrize("first", ["write", "read"])
def test_the_sides_leave_their_resets_in_any_order_and_once(first):
    def leave(h):
        other = {"write": "read", "read": "write"}[first]
        h.reach(h.ran[first] & ~h.ran[other] & h.resets[other])
        h.require(~h.resets[first] | ~h.ran[first])

    proof(leave, induction=1).prove()


def test_a_reset_crosses_at_once_and_ends_with_the_second_edge():
    class Reset(wiring.Component):
        reset: Out(1)

        def elaborate(self, platform):
            m = Module()
            m.submodules.fifo = fifo = AsyncFIFO(width=1, depth=4, w_domain="write", r_domain="read")
            m.d.comb += self.reset.eq(fifo.r_rst)
            return m

    def ends(h):
        stages, edges = h.reset_stages("fifo.r_rst"), Signal(2)
        with h.m.If(h.resets["write"]):
            h.m.d.sync += edges.eq(0)
        with h.m.Elif(h.edges["read"] & (edges != 3)):
            h.m.d.sync += edges.eq(edges + 1)
        h.require(stages[-1] == (edges < 2))
        h.reach(edges == 3)

    proof(ends, Reset).prove()

"""The sum tree of the replay service: a sample finds its leaf, whatever operations are around it."""

import functools
from itertools import accumulate
from typing import Any

from amaranth.hdl import Array, Signal

import hw.replay.sampling.sum_tree
from hw.replay.sampling.multiplier import FRACTION_BITS
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

CAPACITY, ARITY = 8, 2
"""The smallest tree with a root, an inner level in a memory, and leaves."""
PRIORITY_BITS = 1
"""With 2 bits the solver needs three times as long."""


def sample_finds_its_leaf(part: Any, *, single_copy: bool = False) -> Harness:
    """Compare one sample, chosen by the solver, with the priorities at the moment at which it was taken. The tree is
    not rebuilt meanwhile."""
    h = Harness(
        dut := part.SumTree(capacity=CAPACITY, arity=ARITY, priority_bits=PRIORITY_BITS, single_copy=single_copy)
    )
    h.free_inputs()
    operation, found = dut.operations.payload, dut.found.payload
    taken = h.taken(dut.operations)
    priorities = Array(Signal(PRIORITY_BITS, name=f"priority_{leaf}") for leaf in range(CAPACITY))
    h.assume(~dut.restart & ~operation.restores & ~operation.early)
    if not single_copy:
        h.assume(~operation.keeps & (operation.old == priorities[operation.leaf]))
    with h.m.If(taken & ~operation.is_sample & ~operation.keeps):
        h.m.d.sync += priorities[operation.leaf].eq(operation.new)

    follow, age = h.free(1, "follow"), Signal(range(dut.latency + 2))
    fraction = Signal(FRACTION_BITS, reset_less=True)
    then = [Signal(PRIORITY_BITS, name=f"then_{leaf}", reset_less=True) for leaf in range(CAPACITY)]
    h.assume(~follow | (taken & operation.is_sample & (age == 0)))
    h.m.d.sync += age.eq(age + (follow | ((age != 0) & (age != dut.latency + 1))))
    with h.m.If(follow):
        h.m.d.sync += [fraction.eq(operation.fraction), *(one.eq(now) for one, now in zip(then, priorities))]

    begins = [0, *accumulate(then)]
    total, position = Signal.like(dut.total), Signal.like(dut.total, name="position")
    h.m.d.comb += [total.eq(begins[-1]), position.eq((fraction * total) >> FRACTION_BITS)]
    shown, empty = age == dut.latency, total == 0
    right: Any = empty
    for leaf in range(CAPACITY):
        within = (begins[leaf] <= position) & (position < begins[leaf + 1])
        right |= within & (found.leaf == leaf) & (found.priority == then[leaf]) & (found.priority != 0)
    h.require(~shown | (dut.found.valid & found.is_sample & (found.total == total) & (found.empty == empty)))
    h.require(~shown | right)
    h.require(~dut.corrupted)
    h.reach(shown & (found.leaf == 5) & (position == 2))
    h.reach(shown & empty)
    return h


PROOFS = [
    Proof(
        law="a sample of the sum tree finds the leaf in whose interval of the running sum its position lies",
        part=hw.replay.sampling.sum_tree,
        harness=sample_finds_its_leaf,
        depth=24,
        mutants=(
            ("updates & same(passing, here)", "Const(0)"),
            ("writes & same(out, here)", "Const(0)"),
            ("transparent_for=[write]", "transparent_for=[]"),
            ("(mine <= k)", "(mine < k)"),
            ("last.rest >= end", "last.rest > end"),
        ),
    ),
    Proof(
        law="a sample of a sum tree that keeps each priority only once finds its leaf in the same way, as updates wait",
        part=hw.replay.sampling.sum_tree,
        harness=functools.partial(sample_finds_its_leaf, single_copy=True),
        depth=26,
        mutants=(
            ("(operation.is_sample | (samples_inside == 0))", "1"),
            ("Mux(held.keeps | held.restores, old, held.new)", "held.new"),
            ("entering.old.eq(Mux(held.restores, 0, old))", "entering.old.eq(0)"),
        ),
    ),
]

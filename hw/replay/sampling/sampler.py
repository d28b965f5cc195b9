"""Prioritized sampling as one pipe: a table of what handles are good for, and behind it the sum tree and the
histogram."""

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.replay.sampling.histogram import BUCKET_BITS, Histogram
from hw.replay.sampling.slots import Command, CommandKind, SlotTable, generation
from hw.replay.sampling.sum_tree import SumTree

__all__ = ["Result", "Sampler"]


class Result(data.StructLayout):
    """What became of a command: the handle that was filled, updated, drawn or read, its priority, and the total behind
    the command or of a draw. `stale`: an update of what is no longer there, which changed nothing, or a READ of a slot
    that was never filled; `empty`: a draw when all priorities are 0. With either the generation is 0."""

    def __init__(self, capacity: int, priority_bits: int, generation_bits: int):
        super().__init__(
            {
                "kind": CommandKind,
                "stale": 1,
                "empty": 1,
                "slot": range(capacity),
                "generation": generation_bits,
                "priority": priority_bits,
                "total": priority_bits + exact_log2(capacity),
            }
        )


class Sampler(wiring.Component):
    """Adds, updates, draws and reads over `capacity` slots, one a cycle in any mix, each as if those before it were
    done.

    A command's result comes `latency` cycles after it was taken, in order, and cannot be held up. The generation of a
    drawn slot is that of the draw's time, though the slot may have been filled once more until the result is there.
    `lowest` and `highest` are the buckets of the least and of the greatest priority above 0 (`hw/replay/sampling/histogram.py`),
    0 if there is none, behind the command whose result is there, or was there last. Ready `capacity` cycles after a
    reset, at least 256.

    `phased`: there is no second copy of all priorities, but whatever is no draw waits for the draws before it
    (`SumTree`), and `latency` is the least number of cycles. The truth of both is `sim/model/replay/slots.py`.
    """

    def __init__(
        self, *, capacity: int, priority_bits: int = 27, generation_bits: int = 8, arity: int = 16, phased: bool = False
    ):
        self.slots = SlotTable(
            capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits, phased=phased
        )
        self.tree = SumTree(capacity=capacity, priority_bits=priority_bits, arity=arity, phased=phased)
        self.histogram = Histogram(capacity=capacity, priority_bits=priority_bits)
        self.capacity, self.generation_bits, self.phased = capacity, generation_bits, phased
        about = capacity, priority_bits, generation_bits
        super().__init__(
            {
                "commands": In(stream.Signature(Command(*about))),
                "results": Out(stream.Signature(Result(*about), always_ready=True)),
                "filled": Out(range(capacity + 1)),
                "lowest": Out(BUCKET_BITS),
                "highest": Out(BUCKET_BITS),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a command to its result, if it need not wait."""
        return (1 if self.phased else 2) + self.tree.latency + 1

    def elaborate(self, platform):
        m = Module()
        m.submodules.slots, m.submodules.tree = slots, tree = self.slots, self.tree
        m.submodules.histogram = histogram = self.histogram
        placed, operation = slots.placed.payload, tree.operations.payload
        m.d.comb += [
            slots.commands.payload.eq(self.commands.payload),
            slots.commands.valid.eq(self.commands.valid & histogram.changes.ready),
            self.commands.ready.eq(slots.commands.ready & histogram.changes.ready),
            self.filled.eq(slots.filled),
            tree.operations.valid.eq(slots.placed.valid),
            operation.draws.eq(placed.kind == CommandKind.DRAW),
            operation.keeps.eq(~placed.changes),
            operation.leaf.eq(placed.slot),
            operation.old.eq(placed.old),
            operation.new.eq(placed.new),
            operation.fraction.eq(placed.fraction),
            histogram.changes.valid.eq(tree.entered.valid),
            histogram.changes.payload.eq(tree.entered.payload),
        ]
        if self.phased:
            m.d.comb += slots.placed.ready.eq(tree.operations.ready)

        # What goes beside the tree, in step with it.
        about = data.StructLayout({"kind": CommandKind, "stale": 1, "adds": placed.adds.shape()})
        beside = [Signal(about, name=f"beside_{k}", reset_less=True) for k in range(tree.latency + 1)]
        m.d.comb += [beside[0].kind.eq(placed.kind), beside[0].stale.eq(placed.stale), beside[0].adds.eq(placed.adds)]
        m.d.sync += [after.eq(before) for before, after in pairwise(beside)]
        found, arrived, result = tree.found.payload, beside[-1], self.results.payload
        m.d.sync += [
            self.results.valid.eq(tree.found.valid),
            result.kind.eq(arrived.kind),
            result.stale.eq(arrived.stale),
            result.empty.eq(found.empty),
            result.slot.eq(found.leaf),
            result.priority.eq(found.priority),
            result.total.eq(found.total),
            result.generation.eq(
                Mux(found.empty | arrived.stale, 0, generation(arrived.adds, found.leaf, self.capacity))
            ),
        ]

        # The histogram is done sooner than the tree.
        for end, known in ((self.lowest, histogram.lowest), (self.highest, histogram.highest)):
            for _ in range(tree.latency + 1 - tree.entry - histogram.LATENCY):
                known, sooner = Signal(BUCKET_BITS, name="known"), known
                m.d.sync += known.eq(sooner)
            m.d.comb += end.eq(known)
        return m

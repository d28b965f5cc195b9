"""Prioritized sampling as one pipeline: the slot table, and behind it the sum tree and the histogram."""

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.replay.sampling.histogram import BUCKET_BITS, Histogram
from hw.replay.sampling.slots import Command, CommandKind, SlotTable
from hw.replay.sampling.sum_tree import SumTree

__all__ = ["Result", "Sampler"]


class Result(data.StructLayout):
    """The result of a command: the handle that was added, updated, sampled or read, its priority, and the sum of all
    priorities, which includes the command's change.

    `stale`: an UPDATE's handle was stale, and nothing changed, or a READ's slot was never filled, or the priority of a
    RESTORE was lost. `empty`: a SAMPLE found all priorities 0. With either the generation is 0."""

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


def generation(adds, slot, slots: int):
    """Return the generation of a slot after `adds` items: the lap around all slots in which it was filled, from 1."""
    next_slot = adds[: exact_log2(slots)]
    return adds[exact_log2(slots) :] + (slot < next_slot)


class Sampler(wiring.Component):
    """Adds, updates, samples and reads over `capacity` slots in any mix, each as if all commands before it were done.

    Latency: a result comes `latency` cycles after its command was taken. One command in each cycle, results in order;
    `results` must not stall. A sampled slot has the generation that it had when its command was taken, although it may
    be filled again before the result comes. `lowest` and `highest` are the buckets of the smallest and the largest
    priority above 0 (`Histogram`), or 0 if all are 0, as the command of the newest result left them. Not ready for
    `capacity` cycles after a reset, and at least 256.

    `corrupted` is 1 in a cycle in which a bit error was found in a memory, and `corrupt` is 1 from the result of the
    command on that found the error. Results are then undefined until the tree is rebuilt. For that, `restart` is 1 for
    one cycle while no command is inside, and `capacity` RESTOREs follow. Any number of ADDs and UPDATEs may come before
    each RESTORE. From a RESTORE until its result, all commands must be RESTOREs, and no SAMPLE or READ may come until
    the tree is complete. Commands wait for 256 cycles after `restart`. `restored` counts RESTOREs; it is `capacity`
    when the tree is complete. A priority with a bit error becomes 0 when it is restored; the error makes `corrupted` 1,
    and not `corrupt`.

    `single_copy` saves the second copy of all priorities. Then every command but a SAMPLE waits until the SAMPLEs
    before it are past (`SumTree`), and `latency` is a lower bound. The golden model of both is
    `host/iswitch/golden/replay/slots.py`.
    """

    def __init__(
        self,
        *,
        capacity: int,
        priority_bits: int = 27,
        generation_bits: int = 8,
        arity: int = 16,
        single_copy: bool = False,
    ):
        self.slots = SlotTable(
            capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits, single_copy=single_copy
        )
        self.tree = SumTree(capacity=capacity, priority_bits=priority_bits, arity=arity, single_copy=single_copy)
        self.histogram = Histogram(capacity=capacity, priority_bits=priority_bits)
        self.capacity, self.generation_bits, self.single_copy = capacity, generation_bits, single_copy
        shape = capacity, priority_bits, generation_bits
        super().__init__(
            {
                "commands": In(stream.Signature(Command(*shape))),
                "results": Out(stream.Signature(Result(*shape), always_ready=True)),
                "filled": Out(range(capacity + 1)),
                "lowest": Out(BUCKET_BITS),
                "highest": Out(BUCKET_BITS),
                "restart": In(1),
                "restored": Out(range(capacity + 1)),
                "corrupt": Out(1),
                "corrupted": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a command to its result, if the command does not wait."""
        return (1 if self.single_copy else 2) + self.tree.latency + 1

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
            operation.is_sample.eq(placed.kind == CommandKind.SAMPLE),
            operation.keeps.eq(~placed.changes),
            operation.restores.eq(placed.kind == CommandKind.RESTORE),
            operation.early.eq(placed.early),
            operation.leaf.eq(placed.slot),
            operation.old.eq(placed.old),
            operation.new.eq(placed.new),
            operation.fraction.eq(placed.fraction),
            histogram.changes.valid.eq(tree.entered.valid),
            histogram.changes.payload.eq(tree.entered.payload),
            *(part.restart.eq(self.restart) for part in (slots, tree, histogram)),
            self.restored.eq(slots.restored),
        ]
        found_errors = slots.corrupted | tree.corrupted | histogram.corrupted
        m.d.sync += [
            self.corrupted.eq(found_errors | slots.lost | tree.lost),
            self.corrupt.eq(~self.restart & (self.corrupt | found_errors)),
        ]
        if self.single_copy:
            m.d.comb += slots.placed.ready.eq(tree.operations.ready)

        # What the result needs and the tree does not carry, delayed as much.
        shape = data.StructLayout({"kind": CommandKind, "stale": 1, "adds": placed.adds.shape()})
        delayed = [Signal(shape, name=f"delayed_{k}", reset_less=True) for k in range(tree.latency + 1)]
        m.d.comb += [
            delayed[0].kind.eq(placed.kind),
            delayed[0].stale.eq(placed.stale),
            delayed[0].adds.eq(placed.adds),
        ]
        m.d.sync += [after.eq(before) for before, after in pairwise(delayed)]
        # A single_copy tree finds a lost priority when the operation has entered.
        m.d.sync += delayed[tree.entry + 1].stale.eq(delayed[tree.entry].stale | tree.lost)
        found, command, result = tree.found.payload, delayed[-1], self.results.payload
        m.d.sync += [
            self.results.valid.eq(tree.found.valid),
            result.kind.eq(command.kind),
            result.stale.eq(command.stale),
            result.empty.eq(found.empty),
            result.slot.eq(found.leaf),
            result.priority.eq(found.priority),
            result.total.eq(found.total),
            result.generation.eq(
                Mux(found.empty | command.stale, 0, generation(command.adds, found.leaf, self.capacity))
            ),
        ]

        # The histogram is done before the tree: its ends wait for the result.
        for end, delayed_end in ((self.lowest, histogram.lowest), (self.highest, histogram.highest)):
            for _ in range(tree.latency + 1 - tree.entry - histogram.LATENCY):
                delayed_end, source = Signal(BUCKET_BITS, name="delayed_end"), delayed_end
                m.d.sync += delayed_end.eq(source)
            m.d.comb += end.eq(delayed_end)
        return m

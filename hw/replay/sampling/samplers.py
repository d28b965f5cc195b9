"""The samplers of all tables, behind one entry."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.replay.sampling.sampler import Result, Sampler
from hw.replay.sampling.slots import Command
from hw.stream.skid_buffer import SkidBuffer
from iswitch.config import Replay

__all__ = ["HANDLE_BITS", "Samplers", "tree_arity"]

HANDLE_BITS = 32


def tree_arity(replay: Replay) -> int:
    """Of its trees: the least tables are no tree of 16."""
    return min(16, replay.capacity // 2)


class Samplers(wiring.Component):
    """A sampler for each table; `table` chooses whose `commands`, `results`, `filled`, `lowest` and `highest` these
    are. It must not change while something is `pending`. One command a cycle, results in order, 1 cycle after the
    sampler's `latency`; not `ready` after a reset until all slots are wiped, and a command waits until then."""

    def __init__(self, replay: Replay):
        self.replay = replay
        about = replay.capacity, replay.priority_bits, HANDLE_BITS - exact_log2(replay.capacity)
        options = {"arity": tree_arity(replay), "phased": replay.phased}
        self.samplers = [
            Sampler(capacity=about[0], priority_bits=about[1], generation_bits=about[2], **options)
            for _ in range(replay.tables)
        ]
        super().__init__(
            {
                "table": In(range(replay.tables)),
                "commands": In(stream.Signature(Command(*about))),
                "results": Out(stream.Signature(Result(*about), always_ready=True)),
                "filled": Out(range(replay.capacity + 1)),
                "lowest": Out(8),
                "highest": Out(8),
                "pending": Out(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pending, begun, now = Signal(range(1 << 8)), Signal(), Signal()
        m.d.sync += begun.eq(self.ready)
        ready = []
        m.submodules.cut = cut = SkidBuffer(self.commands.payload.shape())
        for k, sampler in enumerate(self.samplers):
            m.submodules[f"sampler_{k}"] = sampler
            m.d.comb += [
                sampler.commands.payload.eq(cut.o.payload),
                sampler.commands.valid.eq(cut.o.valid & (self.table == k)),
            ]
            ready.append(sampler.commands.ready)
        chosen = {
            name: Array(getattr(sampler, name) for sampler in self.samplers)[self.table]
            for name in ("filled", "lowest", "highest")
        }
        m.d.comb += [
            cut.i.payload.eq(self.commands.payload),
            cut.i.valid.eq(self.commands.valid & self.ready),
            self.commands.ready.eq(cut.i.ready & self.ready),
            now.eq(Array(ready)[self.table]),
            cut.o.ready.eq(now),
            self.ready.eq(begun | now),
            self.results.valid.eq(Array(sampler.results.valid for sampler in self.samplers)[self.table]),
            self.results.payload.eq(Array(sampler.results.payload for sampler in self.samplers)[self.table]),
            *(getattr(self, name).eq(value) for name, value in chosen.items()),
            self.pending.eq((pending != 0) | cut.o.valid),
        ]
        m.d.sync += pending.eq(pending + (cut.o.valid & now) - self.results.valid)
        return m

"""The samplers of all tables behind one stream of commands."""

from amaranth.hdl import Array, Cat, Module, Signal
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
    """Return the arity of a table's sum tree: 16, or less for tables too small for it."""
    return min(16, replay.capacity // 2)


class Samplers(wiring.Component):
    """A sampler for each table. `table` selects the sampler that `commands`, `results`, `restart` and all outputs
    belong to; it must not change while a result is `pending`. `intact`: the table's sum tree is complete, and no bit
    error was found. `corrupted` counts an error in any table.

    Latency: 1 cycle more than the sampler's `latency`. One command in each cycle, results in order; `results` must not
    stall. `ready` is 1 when all slots are wiped after a reset; commands wait until then.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        shape = replay.capacity, replay.priority_bits, HANDLE_BITS - exact_log2(replay.capacity)
        options = {"arity": tree_arity(replay), "single_copy": replay.single_copy}
        self.samplers = [
            Sampler(capacity=shape[0], priority_bits=shape[1], generation_bits=shape[2], **options)
            for _ in range(replay.tables)
        ]
        super().__init__(
            {
                "table": In(range(replay.tables)),
                "commands": In(stream.Signature(Command(*shape))),
                "results": Out(stream.Signature(Result(*shape), always_ready=True)),
                "filled": Out(range(replay.capacity + 1)),
                "lowest": Out(8),
                "highest": Out(8),
                "restart": In(1),
                "restored": Out(range(replay.capacity + 1)),
                "corrupt": Out(1),
                "intact": Out(1),
                "corrupted": Out(1),
                "pending": Out(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pending, was_ready, sampler_ready = Signal(range(1 << 8)), Signal(), Signal()
        m.d.sync += was_ready.eq(self.ready)
        ready = []
        m.submodules.skid = buffer = SkidBuffer(self.commands.payload.shape())
        for k, sampler in enumerate(self.samplers):
            m.submodules[f"sampler_{k}"] = sampler
            m.d.comb += [
                sampler.commands.payload.eq(buffer.o.payload),
                sampler.commands.valid.eq(buffer.o.valid & (self.table == k)),
                sampler.restart.eq(self.restart & (self.table == k)),
            ]
            ready.append(sampler.commands.ready)
        selected = {
            name: Array(getattr(sampler, name) for sampler in self.samplers)[self.table]
            for name in ("filled", "lowest", "highest", "restored", "corrupt")
        }
        m.d.comb += [
            buffer.i.payload.eq(self.commands.payload),
            buffer.i.valid.eq(self.commands.valid & self.ready),
            self.commands.ready.eq(buffer.i.ready & self.ready),
            sampler_ready.eq(Array(ready)[self.table]),
            buffer.o.ready.eq(sampler_ready),
            self.ready.eq(was_ready | sampler_ready),
            self.results.valid.eq(Array(sampler.results.valid for sampler in self.samplers)[self.table]),
            self.results.payload.eq(Array(sampler.results.payload for sampler in self.samplers)[self.table]),
            *(getattr(self, name).eq(value) for name, value in selected.items()),
            self.pending.eq((pending != 0) | buffer.o.valid),
            self.intact.eq(~self.corrupt & (self.restored == self.replay.capacity)),
            self.corrupted.eq(Cat(sampler.corrupted for sampler in self.samplers).any()),
        ]
        m.d.sync += pending.eq(pending + (buffer.o.valid & sampler_ready) - self.results.valid)
        return m

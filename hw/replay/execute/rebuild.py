"""Executor of REBUILD: returns slots to a table's sum tree, which was found corrupt."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.replay.execute.commands import ItemCommand
from hw.replay.request.record import Request, view_as
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import REBUILD

__all__ = ["RebuildTree"]


class RebuildTree(wiring.Component):
    """Executes REBUILD: has the sampler restore as many slots as the request's count, from the next one on.

    A request that names slot 0 begins: `restart` is 1 in the cycle of `start`, in which no command may be inside the
    sampler. `done` is 1 for one cycle when no command is `pending`. One slot a cycle, as `commands` is ready.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "request": In(Request(replay)),
                "restart": Out(1),
                "commands": Out(stream.Signature(ItemCommand)),
                "pending": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        left = Signal.like(self.request.frame.count)
        m.d.comb += [
            self.commands.payload.kind.eq(CommandKind.RESTORE),
            self.restart.eq(self.start & (view_as(REBUILD, self.request.parameters).slot == 0)),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += left.eq(self.request.frame.count)
                with m.If(self.start):
                    m.next = "RESTORE"
            with m.State("RESTORE"):
                m.d.comb += self.commands.valid.eq(1)
                with m.If(self.commands.ready):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.next = "WAIT_RESULTS"
            with m.State("WAIT_RESULTS"):
                with m.If(~self.pending):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

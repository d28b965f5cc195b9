"""Executors of requests that read the sampler: SAMPLE and LIST."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.replay.execute.commands import ItemCommand
from hw.replay.request.record import Request, view_as
from hw.replay.sampling.fractions import Batch, Fraction
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import LIST, SAMPLE

__all__ = ["ListItems", "SampleItems"]


class SampleItems(wiring.Component):
    """Executes SAMPLE: asks for random fractions, and samples an item at each of them.

    Waits while `list_in_use`: an answer is being sent from the list that the samples go to. `done` is 1 for one cycle
    when as many fractions as the request's count were taken and no command is `pending`. One sample a cycle, as
    `commands` is ready.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "request": In(Request(replay)),
                "list_in_use": In(1),
                "batches": Out(stream.Signature(Batch)),
                "fractions": In(stream.Signature(Fraction)),
                "commands": Out(stream.Signature(ItemCommand)),
                "pending": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sample, batch = view_as(SAMPLE, self.request.parameters), self.batches.payload
        left = Signal.like(self.request.frame.count)
        m.d.comb += [
            batch.count.eq(self.request.frame.count),
            batch.stride.eq(sample.stride),
            batch.seed.eq(Cat(sample.seed)),
            self.commands.payload.kind.eq(CommandKind.SAMPLE),
            self.commands.payload.fraction.eq(self.fractions.payload.fraction),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += left.eq(self.request.frame.count)
                with m.If(self.start):
                    m.next = "REQUEST_FRACTIONS"
            with m.State("REQUEST_FRACTIONS"):
                m.d.comb += self.batches.valid.eq(~self.list_in_use)
                with m.If(self.batches.valid & self.batches.ready):
                    m.next = "SAMPLE"
            with m.State("SAMPLE"):
                m.d.comb += [self.commands.valid.eq(self.fractions.valid), self.fractions.ready.eq(self.commands.ready)]
                with m.If(self.commands.valid & self.commands.ready):
                    m.d.sync += left.eq(left - 1)
                with m.If((left == 0) & ~self.pending):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m


class ListItems(wiring.Component):
    """Executes LIST: reads as many slots as the request's count, from the slot that its parameters name.

    Waits while `list_in_use`. `done` is 1 for one cycle when no command is `pending`. One slot a cycle, as `commands`
    is ready.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "request": In(Request(replay)),
                "list_in_use": In(1),
                "commands": Out(stream.Signature(ItemCommand)),
                "pending": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        left, slot = Signal.like(self.request.frame.count), Signal(range(self.replay.capacity))
        m.d.comb += [self.commands.payload.kind.eq(CommandKind.READ), self.commands.payload.item.eq(slot)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [left.eq(self.request.frame.count), slot.eq(view_as(LIST, self.request.parameters).slot)]
                with m.If(self.start):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.commands.valid.eq(~self.list_in_use)
                with m.If(self.commands.valid & self.commands.ready):
                    m.d.sync += [left.eq(left - 1), slot.eq(slot + 1)]
                    with m.If(left == 1):
                        m.next = "WAIT_RESULTS"
            with m.State("WAIT_RESULTS"):
                with m.If(~self.pending):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

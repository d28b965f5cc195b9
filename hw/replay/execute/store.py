"""Executors of requests that bring data: WRITE, ADD and UPDATE."""

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.replay.execute.commands import ItemCommand
from hw.replay.memory.sequencer import UnitRange
from hw.replay.request.record import ROW_BITS, Request, view_as
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import ADD_ROW, ROW_BYTES, UNIT_BYTES, UPDATE_ROW, WRITE

__all__ = ["AddItems", "UpdatePriorities", "WriteLog"]


class WriteLog(wiring.Component):
    """Executes WRITE: appends the body's units to the log of the request's session.

    Takes rows after `start` as `rows` is ready. `done` is 1 for one cycle when the body has `ended`, the
    `sequencer_idle`, and memory has confirmed every unit (`writer_busy` is 0): 1 cycle after the last of these at the
    earliest.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "request": In(Request(replay)),
                "body": In(stream.Signature(ROW_BITS)),
                "ended": In(1),
                "load": Out(1),
                "range": Out(UnitRange(replay)),
                "sequencer_idle": In(1),
                "rows": Out(stream.Signature(ROW_BITS)),
                "writer_busy": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        active = Signal()
        m.d.comb += [
            self.load.eq(self.start),
            self.range.index.eq(self.request.session),
            self.range.start.eq(view_as(WRITE, self.request.parameters).start),
            self.range.count.eq(self.request.frame.count),
            self.rows.payload.eq(self.body.payload),
            self.rows.valid.eq(self.body.valid & active),
            self.body.ready.eq(self.rows.ready & active),
            self.done.eq(active & self.ended & self.sequencer_idle & ~self.writer_busy),
        ]
        m.d.sync += active.eq(self.start | active & ~self.done)
        return m


class AddItems(wiring.Component):
    """Executes ADD: for each item a row with its priority, then the rows of its record.

    The record is written where the next item's slot is, which follows from `adds`. `added` is 1 for one cycle for each
    item, and `adds` must count it by the next. `done` is 1 for one cycle when the body has `ended`, memory has
    confirmed every unit and no command is `pending`. One row a cycle, as `commands` and `rows` are ready; an item's
    first row waits until all addresses of the record before are taken.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "body": In(stream.Signature(ROW_BITS)),
                "ended": In(1),
                "adds": In(32),
                "added": Out(1),
                "commands": Out(stream.Signature(ItemCommand)),
                "pending": In(1),
                "load": Out(1),
                "range": Out(UnitRange(replay)),
                "sequencer_idle": In(1),
                "rows": Out(stream.Signature(ROW_BITS)),
                "writer_busy": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        record_bytes = self.replay.record_bytes
        active, at_priority, rows_left = Signal(), Signal(), Signal(range(record_bytes // ROW_BYTES))
        m.d.comb += [
            self.commands.payload.kind.eq(CommandKind.ADD),
            self.commands.payload.priority.eq(view_as(ADD_ROW, self.body.payload).priority),
            self.commands.valid.eq(at_priority & self.body.valid & self.sequencer_idle),
            self.rows.payload.eq(self.body.payload),
            self.rows.valid.eq(active & ~at_priority & self.body.valid),
            self.added.eq(self.commands.valid & self.commands.ready),
            self.load.eq(self.added),
            self.range.in_record.eq(1),
            self.range.index.eq(self.adds[: (self.replay.capacity - 1).bit_length()]),
            self.range.count.eq(record_bytes // UNIT_BYTES),
            self.done.eq(active & self.ended & self.sequencer_idle & ~self.writer_busy & ~self.pending),
        ]
        with m.If(at_priority):
            m.d.comb += self.body.ready.eq(self.commands.ready & self.sequencer_idle)
        with m.Elif(active):
            m.d.comb += self.body.ready.eq(self.rows.ready)
        with m.If(self.added):
            m.d.sync += [rows_left.eq(record_bytes // ROW_BYTES - 1), at_priority.eq(0)]
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += [rows_left.eq(rows_left - 1), at_priority.eq(rows_left == 0)]
        with m.If(self.start):
            m.d.sync += [active.eq(1), at_priority.eq(1)]
        with m.If(self.done):
            m.d.sync += [active.eq(0), at_priority.eq(0)]
        return m


class UpdatePriorities(wiring.Component):
    """Executes UPDATE: a row with handle and priority for each item.

    If the table is `limited`, which means that it has ever limited how often an item may be sampled, a row waits 2
    cycles for `exhausted`, which says whether the item in `body` was sampled that often; then its priority stays 0.
    `done` is 1 for one cycle when the body has `ended` and no command is `pending`. Otherwise one row a cycle, as
    `commands` is ready.
    """

    LOOKUP_CYCLES = 2

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "body": In(stream.Signature(ROW_BITS)),
                "ended": In(1),
                "limited": In(1),
                "exhausted": In(1),
                "commands": Out(stream.Signature(ItemCommand)),
                "pending": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        active, waited, waits = Signal(), Signal(range(self.LOOKUP_CYCLES + 1)), Signal()
        row, command = view_as(UPDATE_ROW, self.body.payload), self.commands.payload
        limited = self.limited if self.replay.sample_count_bits else Const(0)
        m.d.comb += [
            waits.eq(limited & (waited != self.LOOKUP_CYCLES)),
            command.kind.eq(CommandKind.UPDATE),
            command.item.eq(row.item),
            command.priority.eq(row.priority),
            command.retire.eq(self.exhausted),
            self.commands.valid.eq(active & self.body.valid & ~waits),
            self.body.ready.eq(active & self.commands.ready & ~waits),
            self.done.eq(active & self.ended & ~self.pending),
        ]
        with m.If(~self.body.valid | ~waits & self.commands.ready):
            m.d.sync += waited.eq(0)
        with m.Elif(active & waits):
            m.d.sync += waited.eq(waited + 1)
        m.d.sync += active.eq(self.start | active & ~self.done)
        return m

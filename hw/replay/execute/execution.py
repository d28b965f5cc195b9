"""Execution of admitted requests: one executor for each kind that moves data, and what they share."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.interface.axi import address_bits_of
from hw.interface.layout import layout
from hw.replay.execute.commands import CommandEncoder, ResultRecorder, sampler_shape
from hw.replay.execute.data import LIST_LENGTH, LISTS, DataJob
from hw.replay.execute.open_session import OpenSession
from hw.replay.execute.rebuild import RebuildTree
from hw.replay.execute.sample import ListItems, SampleItems
from hw.replay.execute.sample_limit import RetireItems, SampleCounts
from hw.replay.execute.send import Broadcast, FetchList, RequestData
from hw.replay.execute.store import AddItems, UpdatePriorities, WriteLog
from hw.replay.memory.sequencer import UnitSequencer
from hw.replay.reply.cache import list_rows
from hw.replay.request.record import ROW_BITS, Request, TableState, kind_of, view_as
from hw.replay.request.sessions import Session
from hw.replay.sampling.fractions import RandomFractions
from hw.replay.sampling.sampler import Result
from hw.replay.sampling.slots import Command
from iswitch.config import Replay
from iswitch.wire.replay import SAMPLED_ROW, UPDATE_ROW, Kind, ReplayOutcome

__all__ = ["Execution"]


def any_of(bits):
    """Return whether any of the bits is 1."""
    return Cat(bits).any()


class Execution(wiring.Component):
    """Executes a request of a kind that moves data: OPEN, WRITE, ADD, UPDATE, SAMPLE, LIST, FETCH, LOAD, SHOUT or
    REBUILD; or sends the header that says that a log is overwritten, if `outcome` is OVERWRITTEN.

    `start` begins, and `done` is 1 for one cycle at the end. In between `request`, `outcome` and `list` must stay.
    `clear`, before `start`, sets the counts of results to 0. `outcome_changes` is 1 for one cycle when the outcome
    becomes `outcome_next`: no session is given (`failed`, with `done`), or the sampler is `corrupt` at the end of a
    SAMPLE, LIST or REBUILD (with `done`). `undone`: a SAMPLE or LIST ends so, without effect. `opened`: an OPEN ends,
    and `session_next` is its row. `added` counts an item in `table.adds`, and `total_changed` gives the sum of all
    priorities.

    The streams and memories around it: `body` with the request's rows until `ended`; `index` while `needs_session`, for
    `session_row` 1 cycle later, and `session_corrupt` 2 cycles later; `commands` and `results` of the table's sampler,
    where `pending` says that a result is awaited; rows of lists, read and written, where `sending` and `sending_list`
    say which list an answer is being sent from; addresses and rows of units that are written; and `jobs`, the DATA
    frames that are requested, with the `slot` of row `position` of a FETCH's list `read_list`. All may stall but
    `results`. FETCH, LOAD and SHOUT are done when their DATA frames are requested. WRITE and ADD must not start while a
    frame is still to be made.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        address_bits = address_bits_of(replay.memory_bytes)
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "clear": In(1),
                "request": In(Request(replay)),
                "outcome": In(ReplayOutcome),
                "outcome_changes": Out(1),
                "outcome_next": Out(ReplayOutcome),
                "failed": Out(1),
                "undone": Out(1),
                "body": In(stream.Signature(ROW_BITS)),
                "ended": In(1),
                # sessions
                "needs_session": Out(1),
                "index": Out(range(replay.sessions)),
                "session_row": In(Session),
                "session_corrupt": In(1),
                "found_corrupt": Out(1),
                "search": Out(1),
                "found": In(1),
                "found_index": In(range(replay.sessions)),
                "found_open": In(1),
                "full": In(1),
                "opened": Out(1),
                "session_next": Out(Session),
                "challenge": Out(32),
                # the table and its sampler
                "table": In(TableState),
                "filled": In(range(replay.capacity + 1)),
                "added": Out(1),
                "total_changed": Out(1),
                "total": Out(64),
                "commands": Out(stream.Signature(Command(*sampler_shape(replay)))),
                "saturated": Out(1),
                "pending": In(1),
                "restart": Out(1),
                "corrupt": In(1),
                "results": In(stream.Signature(Result(*sampler_shape(replay)), always_ready=True)),
                "results_done": Out(16),
                "results_stale": Out(16),
                # lists
                "list": In(range(list_rows(replay))),
                "sending": In(1),
                "sending_list": In(range(list_rows(replay))),
                "row_address": Out(range(list_rows(replay))),
                "row": In(layout(SAMPLED_ROW)),
                "row_corrupt": In(1),
                "write_row": Out(1),
                "write_row_address": Out(range(list_rows(replay))),
                "row_next": Out(layout(SAMPLED_ROW)),
                # memory
                "writes": Out(stream.Signature(address_bits)),
                "write_rows": Out(stream.Signature(ROW_BITS)),
                "writer_busy": In(1),
                # data frames
                "jobs": Out(stream.Signature(DataJob(replay))),
                "read_list": In(range(LISTS)),
                "position": In(range(LIST_LENGTH)),
                "slot": Out(range(replay.capacity)),
                "slot_corrupt": Out(1),
            }
        )
        self.open_session, self.write_log, self.add_items = OpenSession(replay), WriteLog(replay), AddItems(replay)
        self.update, self.sample, self.list_items = UpdatePriorities(replay), SampleItems(replay), ListItems(replay)
        self.fetch_list, self.request_data, self.broadcast = FetchList(replay), RequestData(replay), Broadcast(replay)
        self.rebuild = RebuildTree(replay)
        self.retire = RetireItems(replay) if replay.sample_count_bits else None

    def elaborate(self, platform):
        m = Module()
        for name in (
            "open_session",
            "write_log",
            "add_items",
            "update",
            "sample",
            "list_items",
            "rebuild",
            "fetch_list",
            "request_data",
            "broadcast",
        ):
            m.submodules[name] = getattr(self, name)
        for executor in (
            self.open_session,
            self.write_log,
            self.sample,
            self.list_items,
            self.rebuild,
            self.request_data,
        ):
            m.d.comb += executor.request.eq(self.request)
        self._start(m)
        self._finish(m)
        self._share_body(m)
        self._share_sessions(m)
        self._share_commands(m)
        errors = [self.broadcast.found_corrupt]
        if self.retire is not None:
            m.submodules.retire = self.retire
            errors.append(self._count_samples(m))
        m.d.comb += self.found_corrupt.eq(any_of(errors))
        self._share_memory(m)
        self._request_data(m)
        return m

    def _start(self, m):
        """Start the executor of the request's kind, and request data when there is something to send."""
        kind, overwritten = kind_of(self.request.frame), self.outcome == ReplayOutcome.OVERWRITTEN
        for executor, of in (
            (self.open_session, Kind.OPEN),
            (self.write_log, Kind.WRITE),
            (self.add_items, Kind.ADD),
            (self.update, Kind.UPDATE),
            (self.sample, Kind.SAMPLE),
            (self.list_items, Kind.LIST),
            (self.rebuild, Kind.REBUILD),
            (self.fetch_list, Kind.FETCH),
        ):
            m.d.comb += executor.start.eq(self.start & (kind == of))
        m.d.comb += [
            self.broadcast.start.eq(self.start & (kind == Kind.SHOUT) & ~overwritten),
            self.request_data.start.eq(
                self.start & ((kind == Kind.LOAD) | overwritten) | self.fetch_list.done | self.broadcast.send
            ),
        ]

    def _finish(self, m):
        """The request is done with its last executor."""
        sampled = self.sample.done
        if self.retire is not None:
            m.d.comb += self.retire.start.eq(self.sample.done & ~self.corrupt)
            sampled = self.retire.done | self.undone
        corrupted = Signal()
        exclusive_executors = (
            self.open_session,
            self.write_log,
            self.add_items,
            self.update,
            self.list_items,
            self.rebuild,
            self.broadcast,
        )
        m.d.comb += [
            self.failed.eq(self.open_session.failed),
            self.undone.eq((self.sample.done | self.list_items.done) & self.corrupt),
            corrupted.eq(self.undone | self.rebuild.done & self.corrupt),
            self.done.eq(
                any_of(executor.done for executor in exclusive_executors)
                | sampled
                | self.request_data.done & ~self.broadcast.active
            ),
            self.opened.eq(self.open_session.done & ~self.open_session.failed),
            self.session_next.eq(self.open_session.session),
            self.challenge.eq(self.open_session.challenge),
            self.outcome_changes.eq(self.failed | corrupted),
            self.outcome_next.eq(Mux(self.failed, self.open_session.failure, ReplayOutcome.CORRUPT)),
        ]

    def _share_body(self, m):
        """Offer the body's rows to the executors, of which at most one is ready."""
        executors = (self.write_log, self.add_items, self.update, self.fetch_list)
        for executor in executors:
            m.d.comb += [
                executor.body.payload.eq(self.body.payload),
                executor.body.valid.eq(self.body.valid),
                executor.ended.eq(self.ended),
            ]
        m.d.comb += self.body.ready.eq(any_of(executor.body.ready for executor in executors))

    def _share_sessions(self, m):
        m.d.comb += [
            self.needs_session.eq(self.open_session.active | self.broadcast.active),
            self.index.eq(Mux(self.open_session.active, self.found_index, self.broadcast.index)),
            self.search.eq(self.open_session.search),
            self.open_session.found.eq(self.found),
            self.open_session.opened.eq(self.found_open),
            self.open_session.full.eq(self.full),
            self.open_session.row.eq(self.session_row),
            self.open_session.corrupt.eq(self.session_corrupt),
            self.broadcast.row.eq(self.session_row),
            self.broadcast.row_corrupt.eq(self.session_corrupt),
            self.broadcast.requester.eq(self.request.session),
        ]

    def _share_commands(self, m):
        """Commands of the active executor to the sampler, and its results to the list and the counts."""
        m.submodules.encoder = encoder = CommandEncoder(self.replay)
        m.submodules.recorder = recorder = ResultRecorder(self.replay)
        m.submodules.fractions = fractions = RandomFractions()
        connect(m, self.sample.batches, fractions.batches)
        connect(m, fractions.fractions, self.sample.fractions)
        connect(m, encoder.o, flipped(self.commands))
        connect(m, flipped(self.results), recorder.results)
        executors = [
            self.add_items,
            self.update,
            self.sample,
            self.list_items,
            self.rebuild,
            *([] if self.retire is None else [self.retire]),
        ]
        kind, payload = kind_of(self.request.frame), encoder.i.payload
        m.d.comb += [
            payload.eq(self.add_items.commands.payload),
            encoder.i.valid.eq(any_of(executor.commands.valid for executor in executors)),
        ]
        with m.If(kind == Kind.UPDATE):
            m.d.comb += payload.eq(self.update.commands.payload)
        with m.Elif(kind == Kind.LIST):
            m.d.comb += payload.eq(self.list_items.commands.payload)
        with m.Elif(kind == Kind.REBUILD):
            m.d.comb += payload.eq(self.rebuild.commands.payload)
        with m.Elif(kind == Kind.SAMPLE):
            m.d.comb += payload.eq(self.sample.commands.payload)
            if self.retire is not None:
                with m.If(self.retire.active):
                    m.d.comb += payload.eq(self.retire.commands.payload)
        for executor in executors:
            m.d.comb += [executor.commands.ready.eq(encoder.i.ready), executor.pending.eq(self.pending)]
        m.d.comb += [
            self.restart.eq(self.rebuild.restart),
            self.saturated.eq(encoder.saturated),
            self.add_items.adds.eq(self.table.adds),
            self.added.eq(self.add_items.added),
            self.sample.list_in_use.eq(self.sending & (self.sending_list == self.list)),
            self.list_items.list_in_use.eq(self.sending),
            recorder.clear.eq(self.clear),
            recorder.samples.eq(kind == Kind.SAMPLE),
            recorder.list.eq(self.list),
            self.write_row.eq(recorder.write_row),
            self.write_row_address.eq(recorder.row_address),
            self.row_next.eq(recorder.row),
            self.results_done.eq(recorder.done),
            self.results_stale.eq(recorder.stale),
            self.total_changed.eq(recorder.total_changed),
            self.total.eq(recorder.total),
        ]

    def _count_samples(self, m):
        """How often items were sampled, counted by `retire`, looked up by `update`, and set to 0 by `add_items`. Return
        whether a count is used that has a bit error."""
        m.submodules.counts = counts = SampleCounts(self.replay)
        updated, found = self.update.commands.valid & self.update.commands.ready, Signal(name="count_corrupt")
        updates, slot_bits = kind_of(self.request.frame) == Kind.UPDATE, exact_log2(self.replay.capacity)
        m.d.comb += [
            counts.table.eq(self.request.table),
            counts.times.eq(self.table.times),
            counts.slot.eq(Mux(updates, view_as(UPDATE_ROW, self.body.payload).item[:slot_bits], self.retire.slot)),
            counts.count.eq(self.retire.count),
            counts.clear.eq(self.add_items.added),
            counts.clear_slot.eq(self.table.adds),
            self.update.limited.eq(self.table.limited),
            counts.limited.eq(self.table.limited),
            counts.filled.eq(self.filled),
            found.eq(counts.corrupt & (self.retire.count | updated & self.table.limited) | self.retire.found_corrupt),
            self.update.exhausted.eq(counts.exhausted),
            self.retire.times.eq(self.table.times),
            self.retire.items.eq(self.request.frame.count),
            self.retire.last.eq(counts.last),
            self.retire.row.eq(self.row),
            self.retire.row_corrupt.eq(self.row_corrupt),
            self.retire.list_in_use.eq(self.sending),
            self.row_address.eq(self.list + self.retire.position),
        ]
        return found

    def _share_memory(self, m):
        """Addresses of the units that the active executor writes, and their rows."""
        m.submodules.sequencer = sequencer = UnitSequencer(self.replay)
        connect(m, sequencer.units, flipped(self.writes))
        kind, writers = kind_of(self.request.frame), (self.write_log, self.add_items)
        m.d.comb += [
            sequencer.table.eq(self.request.table),
            sequencer.load.eq(any_of(writer.load for writer in writers)),
            sequencer.range.eq(Mux(kind == Kind.WRITE, self.write_log.range, self.add_items.range)),
            self.write_rows.payload.eq(self.body.payload),
            self.write_rows.valid.eq(any_of(writer.rows.valid for writer in writers)),
        ]
        for writer in writers:
            m.d.comb += [
                writer.sequencer_idle.eq(sequencer.idle),
                writer.writer_busy.eq(self.writer_busy),
                writer.rows.ready.eq(self.write_rows.ready),
            ]

    def _request_data(self, m):
        """Request DATA frames, of the records of a FETCH, of a log, or for the recipients of a SHOUT."""
        fetch_list, request_data, broadcast = self.fetch_list, self.request_data, self.broadcast
        connect(m, request_data.jobs, flipped(self.jobs))
        m.d.comb += [
            fetch_list.adds.eq(self.table.adds),
            fetch_list.filled.eq(self.filled),
            fetch_list.read_list.eq(self.read_list),
            fetch_list.position.eq(self.position),
            self.slot.eq(fetch_list.slot),
            self.slot_corrupt.eq(fetch_list.slot_corrupt),
            request_data.outcome.eq(self.outcome),
            request_data.list.eq(fetch_list.list),
            request_data.overwritten.eq(fetch_list.overwritten),
            request_data.to_recipient.eq(broadcast.active),
            request_data.recipient.eq(broadcast.recipient),
            request_data.recipient_session.eq(broadcast.index),
            broadcast.sent.eq(request_data.done),
        ]

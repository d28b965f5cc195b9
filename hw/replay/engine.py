"""The replay service: reads requests one after another, decides on each, has it executed and answered."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.interface.axi import Axi4, address_bits_of
from hw.interface.replay_request import RequestOrigin
from hw.interface.reply import ReplyRoute
from hw.replay.execute.acknowledge import Acknowledgement, Closing, PrioritySummary
from hw.replay.execute.bookkeeping import Bookkeeping
from hw.replay.execute.data import DataSender
from hw.replay.execute.execution import Execution
from hw.replay.memory.units import UnitReader, UnitWriter
from hw.replay.reply.answers import AnswerSender
from hw.replay.reply.cache import ReplyCache, scratch_list
from hw.replay.reply.framer import ReplyFramer, queue_words
from hw.replay.request.admission import Admission
from hw.replay.request.reader import RequestReader
from hw.replay.request.receiver import RequestReceiver
from hw.replay.request.record import TableState, kind_of, view_as
from hw.replay.request.sessions import Session, Sessions
from hw.replay.sampling.samplers import Samplers
from hw.stream.packet import Packet
from hw.stream.store_and_forward import StoreAndForward
from iswitch.config import Config
from iswitch.wire.replay import LOAD, OPEN, Kind, ReplayOutcome

__all__ = ["Engine"]

NOT_EXECUTED = (
    ReplayOutcome.AHEAD,
    ReplayOutcome.OLD,
    ReplayOutcome.TICKET,
    ReplayOutcome.ITEMS,
    ReplayOutcome.EMPTY,
    ReplayOutcome.RATE,
    ReplayOutcome.RANGE,
    ReplayOutcome.MEMORY,
    ReplayOutcome.CORRUPT,
)
"""Outcomes of requests that are answered without being executed."""
BOOKKEEPING_ONLY = (Kind.CLOSE, Kind.PUBLISH, Kind.LIMIT, Kind.SKIP, Kind.LOOK)
"""Kinds that move no data."""
MOVES_DATA = (
    Kind.WRITE,
    Kind.ADD,
    Kind.UPDATE,
    Kind.SAMPLE,
    Kind.LIST,
    Kind.FETCH,
    Kind.LOAD,
    Kind.SHOUT,
    Kind.REBUILD,
)
"""Kinds that are executed step by step; OPEN is, too, and needs no admission."""
WRITES_MEMORY = (Kind.WRITE, Kind.ADD)
"""Kinds that wait until what the requests before them read is on its way."""


class Engine(wiring.Component):
    """Executes requests in the order in which they arrive, each completely before the next.

    Only DATA frames are made beside the execution of the next requests. They and the answers leave in the order of
    their requests. A request that writes to memory waits until the frames before it are made.

    `words` are frames with `first` and, constant over a frame, `arrived`; the entry never stalls. A frame without room
    is dropped, and `stat_drop` is 1 for one cycle. `o` are complete frames without addresses, which `Stamp` fills in
    once for all ports; it may stall. `memory` holds records and logs as `Config.replay` lays them out. `outcome` is the
    outcome of a request in the cycle in which `concluded` is 1; `saturated` is 1 for each priority that was too large,
    `memory_error` for each error response of the memory, `corrupted` in each cycle in which a bit error was found in
    the memories of priorities, `corrupted_state` in each cycle in which a bit error was found in another memory. After
    a reset requests wait until sessions and slots are wiped. `busy`: a request or a reply is inside.

    A request takes 18 cycles, 8 of them for its header, and 1 for each row of its body, each sample and each item that
    it adds; a row of an UPDATE takes 3 while `times` is set. OPEN takes 3 more and 2 for each session, UPDATE the
    sampler's `latency` and 2, SAMPLE that and 10 (8 if the switch counts no samples; 4 more for each sample while
    `times` is set), FETCH 1; ADD and WRITE take as long as memory needs. Frames leave at a word a cycle. Between the
    last row of a request and the first row of the next, that request's frame is checked for bit errors: 1 cycle for
    each of its words, and 4.
    Answers are sent while the next request is executed. The golden model is `host/iswitch/golden/replay/service.py`,
    the rules are in docs/replay.md.
    """

    def __init__(self, config: Config):
        if config.replay is None:
            raise ValueError("Engine config.replay must be a Replay, not None")
        self.config, self.replay = config, config.replay
        self.address_bits = address_bits_of(self.replay.memory_bytes)
        super().__init__(
            {
                "words": In(stream.Signature(Packet(config.bus_bits), always_ready=True)),
                "first": In(1),
                "arrived": In(RequestOrigin),
                "o": Out(stream.Signature(Packet(config.bus_bits, meta=ReplyRoute))),
                "memory": Out(Axi4(self.address_bits, data_bits=config.bus_bits)),
                "now_us": In(32),
                "concluded": Out(1),
                "outcome": Out(ReplayOutcome),
                "stat_drop": Out(1),
                "saturated": Out(1),
                "memory_error": Out(1),
                "corrupted": Out(1),
                "corrupted_state": Out(1),
                "busy": Out(1),
            }
        )
        replay = self.replay
        self.receiver = RequestReceiver(bus_bits=config.bus_bits, depth=replay.request_bytes // config.bus_bytes)
        self.reader, self.admission = RequestReader(replay), Admission(replay)
        self.bookkeeping, self.execution, self.acknowledgement = (
            Bookkeeping(replay),
            Execution(replay),
            Acknowledgement(replay),
        )
        self.sessions = Sessions(sessions=replay.sessions, cached_answers=replay.cached_answers)
        self.samplers, self.cache = Samplers(replay), ReplyCache(replay, bus_bits=config.bus_bits)
        self.answer_sender, self.data_sender = (
            sender(replay, bus_bits=config.bus_bits) for sender in (AnswerSender, DataSender)
        )
        self.framer = ReplyFramer(bus_bits=config.bus_bits)
        self.complete_frames = StoreAndForward(
            bus_bits=config.bus_bits, depth=queue_words(config.bus_bits), meta=ReplyRoute
        )
        self.unit_reader, self.unit_writer = (
            unit(self.address_bits, data_bits=config.bus_bits) for unit in (UnitReader, UnitWriter)
        )

    def elaborate(self, platform):
        m = Module()
        for name in (
            "receiver",
            "reader",
            "admission",
            "bookkeeping",
            "execution",
            "acknowledgement",
            "sessions",
            "samplers",
            "cache",
            "answer_sender",
            "data_sender",
            "framer",
            "complete_frames",
            "unit_reader",
            "unit_writer",
        ):
            m.submodules[name] = getattr(self, name)
        # The rows of the request's session and table while it is carried out, written back when it is recorded.
        session, table, outcome = Signal(Session), Signal(TableState), Signal(ReplayOutcome)
        m.d.comb += [
            self.outcome.eq(Mux(self.acknowledgement.concluded, outcome, self.data_sender.outcome)),
            self.concluded.eq(self.acknowledgement.concluded | self.data_sender.concluded),
            self.data_sender.hold.eq(self.acknowledgement.concluded),
            self.saturated.eq(self.execution.saturated),
            self.busy.eq(
                ~self.reader.idle
                | self.receiver.busy
                | self.answer_sender.busy
                | self.data_sender.busy
                | self.framer.busy
                | self.complete_frames.busy
            ),
        ]
        self._connect_entry(m)
        self._connect_request(m, session, table, outcome)
        self._connect_sessions(m, session)
        self._connect_sampler(m, table)
        self._connect_lists(m)
        self._connect_memory(m)
        self._connect_exit(m)
        self._sequence(m, session, table, outcome)
        return m

    def _sequence(self, m, session, table, outcome):
        """Carry out one request after another: read it, look up its rows, decide, execute, acknowledge."""
        reader, admission, bookkeeping, execution, acknowledgement = (
            self.reader,
            self.admission,
            self.bookkeeping,
            self.execution,
            self.acknowledgement,
        )
        request, kind = reader.request, kind_of(reader.request.frame)
        tables = [Signal(TableState, init={"ticket": 1}, name=f"table_{k}") for k in range(self.replay.tables)]
        counts, enough, product = Signal(), Signal(), Signal(48)
        session_corrupted, answer_lost = Signal(), Signal()
        m.d.comb += [
            self.corrupted_state.eq(
                session_corrupted
                | self.sessions.searched_corrupt
                | execution.found_corrupt
                | self.data_sender.found_corrupt
                | answer_lost
                | self.receiver.stat_corrupt
                | self.answer_sender.spoil
            ),
            admission.product.eq(product),
            bookkeeping.product.eq(product),
            bookkeeping.enough.eq(enough),
            acknowledgement.counts.eq(counts),
        ]

        def close(closing: Closing) -> None:
            m.d.comb += [acknowledgement.start.eq(1), acknowledgement.closing.eq(closing)]
            m.next = "ACKNOWLEDGE"

        def execute() -> None:
            m.d.comb += execution.start.eq(1)
            m.next = "EXECUTE"

        with m.FSM():
            with m.State("READ"):
                m.d.comb += execution.clear.eq(reader.done)
                m.d.sync += [table.eq(Array(tables)[request.table]), outcome.eq(reader.outcome), counts.eq(0)]
                with m.If(reader.done):
                    m.next = "LOOK_UP"
                    with m.If(reader.outcome != ReplayOutcome.DONE):
                        close(Closing.FAULT)
            with m.State("LOOK_UP"):
                load = view_as(LOAD, request.parameters)
                m.d.comb += self.sessions.index.eq(Mux(load.session < self.replay.sessions, load.session, 0))
                m.d.sync += [session.eq(self.sessions.row), product.eq(request.frame.count * table.ratio)]
                m.next = "WAIT_ROW"
                with m.If(kind == Kind.OPEN):
                    execute()
            with m.State("WAIT_ROW"):
                # Now `admission` sees the requester's session, and the session whose log is read.
                m.d.comb += session_corrupted.eq(self.sessions.corrupt)
                m.next = "ADMIT"
            with m.State("ADMIT"):
                m.d.comb += session_corrupted.eq(self.sessions.corrupt & admission.reads_log)
                m.d.comb += answer_lost.eq(admission.answer_lost)
                m.d.sync += [outcome.eq(admission.outcome), counts.eq(admission.counts), enough.eq(admission.enough)]
                with m.If(admission.known):
                    m.d.sync += session.heard.eq(request.now_us)
                m.next = "START"
            with m.State("START"):
                with m.Switch(outcome):
                    with m.Case(ReplayOutcome.SESSION):
                        close(Closing.FAULT)
                    with m.Case(ReplayOutcome.REPEATED):
                        close(Closing.REPEAT)
                    with m.Case(*NOT_EXECUTED):
                        close(Closing.RECORD)
                    with m.Case(ReplayOutcome.OVERWRITTEN):
                        execute()
                    with m.Case(ReplayOutcome.DONE):
                        with m.If(~(kind.matches(*WRITES_MEMORY) & self.data_sender.busy)):
                            m.d.sync += [session.eq(bookkeeping.session_next), table.eq(bookkeeping.table_next)]
                            with m.Switch(kind):
                                with m.Case(*MOVES_DATA):
                                    execute()
                                with m.Case(*BOOKKEEPING_ONLY):
                                    close(Closing.RECORD)
            with m.State("EXECUTE"):
                with m.If(execution.done):
                    close(Closing.RECORD)
                    with m.If(execution.failed):  # no session is given
                        m.d.comb += acknowledgement.closing.eq(Closing.FAULT)
                with m.If(execution.outcome_changes):
                    m.d.sync += outcome.eq(execution.outcome_next)
                with m.If(execution.opened):
                    m.d.sync += session.eq(execution.session_next)
                with m.If(execution.added):
                    m.d.sync += table.adds.eq(table.adds + 1)
                with m.If(execution.total_changed):
                    m.d.sync += table.total.eq(execution.total)
                with m.If(execution.undone):
                    m.d.comb += execution.clear.eq(1)
                    m.d.sync += table.eq(Array(tables)[request.table])
            with m.State("ACKNOWLEDGE"):
                with m.If(acknowledgement.settle):
                    m.d.sync += [session.eq(acknowledgement.session_next), table.eq(acknowledgement.table_next)]
                for k, row in enumerate(tables):
                    with m.If(acknowledgement.record & (request.table == k)):
                        m.d.sync += row.eq(table)
                with m.If(acknowledgement.done):
                    m.d.comb += reader.release.eq(1)
                    m.next = "READ"
        m.d.comb += [
            self.sessions.write.eq(acknowledgement.write_session),
            self.cache.write.eq(acknowledgement.write_answer),
        ]

    def _connect_entry(self, m):
        """Frames to the reader, and a request's body to its executor."""
        receiver, reader, execution = self.receiver, self.reader, self.execution
        connect(m, flipped(self.words), receiver.words)
        connect(m, receiver.rows, reader.rows)
        connect(m, reader.body, execution.body)
        m.d.comb += [
            receiver.first.eq(self.first),
            receiver.arrived.eq(self.arrived),
            self.stat_drop.eq(receiver.stat_drop),
            reader.enable.eq(self.sessions.wiped & self.samplers.ready),
            reader.arrived.eq(receiver.arrived_o),
            reader.now_us.eq(self.now_us),
            reader.start_body.eq(execution.start),
            execution.ended.eq(reader.ended),
        ]

    def _connect_request(self, m, session, table, outcome):
        """The request and its rows to the components that decide by them."""
        request = self.reader.request
        for component in (self.bookkeeping, self.acknowledgement):
            m.d.comb += [component.request.eq(request), component.session.eq(session), component.table.eq(table)]
        m.d.comb += [
            self.admission.frame.eq(request.frame),
            self.admission.parameters.eq(request.parameters),
            self.admission.ordered.eq(self.reader.ordered),
            self.admission.session.eq(session),
            self.admission.table.eq(table),
            self.execution.request.eq(request),
            self.execution.outcome.eq(outcome),
            self.execution.table.eq(table),
            self.acknowledgement.outcome.eq(outcome),
            self.acknowledgement.challenge.eq(self.execution.challenge),
            self.acknowledgement.results_done.eq(self.execution.results_done),
            self.acknowledgement.results_stale.eq(self.execution.results_stale),
        ]

    def _connect_sessions(self, m, session):
        """The rows of sessions, and the search for a nonce or a free session."""
        sessions, execution, reader = self.sessions, self.execution, self.reader
        m.d.comb += [
            sessions.index.eq(Mux(execution.needs_session, execution.index, reader.request.session)),
            sessions.row_next.eq(session),
            sessions.now_us.eq(self.now_us),
            sessions.nonce.eq(view_as(OPEN, reader.request.parameters).nonce),
            sessions.search.eq(execution.search),
            execution.found.eq(sessions.found),
            execution.found_index.eq(sessions.found_index),
            execution.found_open.eq(sessions.opened),
            execution.full.eq(sessions.full),
            execution.session_row.eq(sessions.row),
            execution.session_corrupt.eq(sessions.corrupt),
            self.admission.session_corrupt.eq(sessions.corrupt),
            self.admission.other.eq(sessions.row),
            self.admission.other_corrupt.eq(sessions.corrupt),
            reader.opened.eq(execution.opened),
            reader.opened_session.eq(sessions.found_index),
        ]

    def _connect_sampler(self, m, table):
        """Commands to the sampler of the request's table, and its priorities."""
        samplers, execution, acknowledgement = self.samplers, self.execution, self.acknowledgement
        priorities, sampled_from = Signal(PrioritySummary), Signal(PrioritySummary)
        connect(m, execution.commands, samplers.commands)
        connect(m, samplers.results, execution.results)
        m.d.comb += [
            samplers.table.eq(self.reader.request.table),
            samplers.restart.eq(execution.restart),
            execution.pending.eq(samplers.pending),
            execution.corrupt.eq(samplers.corrupt),
            self.admission.intact.eq(samplers.intact),
            self.admission.restored.eq(samplers.restored),
            self.corrupted.eq(samplers.corrupted),
            priorities.total.eq(table.total),
            priorities.lowest.eq(samplers.lowest),
            priorities.highest.eq(samplers.highest),
            acknowledgement.priorities.eq(priorities),
            acknowledgement.sampled_from.eq(sampled_from),
        ]
        with m.If(execution.start):
            m.d.sync += sampled_from.eq(priorities)
        for component in (self.admission, execution, acknowledgement):
            m.d.comb += component.filled.eq(samplers.filled)

    def _connect_lists(self, m):
        """Cached answers and their lists, which are an answer's that is being sent, else the request's."""
        request, cache, execution, acknowledgement, sender = (
            self.reader.request,
            self.cache,
            self.execution,
            self.acknowledgement,
            self.answer_sender,
        )
        cached_answers, samples, list_begin = (
            self.replay.cached_answers,
            self.replay.samples_per_request,
            Signal.like(cache.row_address),
        )
        # Frames leave in the order of their requests: an answer waits until the data requested before it are sent.
        answers, waits = acknowledgement.answers, self.data_sender.busy
        m.d.comb += [
            sender.answers.payload.eq(answers.payload),
            sender.answers.valid.eq(answers.valid & ~waits),
            answers.ready.eq(sender.answers.ready & ~waits),
        ]
        m.d.sync += list_begin.eq(
            Mux(kind_of(request.frame) == Kind.LIST, scratch_list(self.replay), cache.index * samples)
        )
        m.d.comb += [
            cache.index.eq(request.session * cached_answers + (request.frame.seq & cached_answers - 1)),
            cache.answer_next.eq(acknowledgement.answer),
            cache.row_address.eq(Mux(sender.busy, sender.row_address, execution.row_address)),
            cache.write_row.eq(execution.write_row),
            cache.write_row_address.eq(execution.write_row_address),
            cache.row_next.eq(execution.row_next),
            acknowledgement.cached.eq(cache.answer),
            acknowledgement.list.eq(list_begin),
            execution.list.eq(list_begin),
            execution.row.eq(cache.row),
            execution.row_corrupt.eq(cache.row_corrupt),
            self.admission.answer_corrupt.eq(cache.answer_corrupt),
            sender.corrupt.eq(cache.word_corrupt),
            cache.lost.eq(sender.spoil),
            cache.lost_list.eq(sender.list),
            execution.sending.eq(sender.busy),
            execution.sending_list.eq(sender.list),
            sender.listed.eq(cache.word),
        ]

    def _connect_memory(self, m):
        """Units that are read and written, as AXI4."""
        reader, writer, execution, bus = self.unit_reader, self.unit_writer, self.execution, self.memory
        data = self.data_sender
        connect(m, execution.jobs, data.jobs)
        connect(m, data.units, reader.units)
        connect(m, reader.beats, data.beats)
        connect(m, execution.writes, writer.units)
        connect(m, execution.write_rows, writer.rows)
        m.d.comb += [
            execution.read_list.eq(data.list),
            execution.position.eq(data.position),
            data.slot.eq(execution.slot),
            data.slot_corrupt.eq(execution.slot_corrupt),
        ]
        for inner, outer in (
            (reader.ar, bus.ar),
            (reader.r, bus.r),
            (writer.aw, bus.aw),
            (writer.w, bus.w),
            (writer.b, bus.b),
        ):
            connect(m, inner, flipped(outer))
        m.d.comb += [execution.writer_busy.eq(writer.busy), self.memory_error.eq(reader.error | writer.error)]

    def _connect_exit(self, m):
        """Frames of answers, and of data while no answer is being sent."""
        framer, sender, data_sender = self.framer, self.answer_sender, self.data_sender
        connect(m, framer.o, self.complete_frames.i)
        connect(m, self.complete_frames.o, flipped(self.o))
        for answer, data, frames in (
            (sender.heads, data_sender.heads, framer.heads),
            (sender.words, data_sender.words, framer.words),
        ):
            m.d.comb += [
                frames.payload.eq(Mux(sender.busy, answer.payload, data.payload)),
                frames.valid.eq(Mux(sender.busy, answer.valid, data.valid)),
                answer.ready.eq(frames.ready & sender.busy),
                data.ready.eq(frames.ready & ~sender.busy),
            ]

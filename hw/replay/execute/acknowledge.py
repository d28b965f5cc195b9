"""The last step of a request: its number is used up, its answer is kept and sent."""

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.layout import layout
from hw.replay.reply.answers import OutgoingAnswer
from hw.replay.reply.cache import Answer, list_rows
from hw.replay.request.record import Request, TableState, kind_of
from hw.replay.request.sessions import Session
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from iswitch.config import PORTS_MAX, Replay
from iswitch.wire import NOTICE_INTERVAL_US
from iswitch.wire.replay import STATUS, Kind, ReplayOutcome

__all__ = ["Acknowledgement", "Closing", "PrioritySummary"]

TICKETED = (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)
"""Kinds that move their table's ticket on."""
LAST_TICKET = (1 << 32) - 1
"""The next is 1, since 0 says that a request waits for no ticket."""


class Closing(IntEnum):
    """How a request ends: RECORD an answer, REPEAT the answer that it had before, or report a FAULT of the header or
    the session."""

    RECORD = 0
    REPEAT = 1
    FAULT = 2


class PrioritySummary(data.Struct):
    """The priorities of a table: their sum, and the buckets of the smallest and the largest above 0."""

    total: 64
    lowest: 8
    highest: 8


class Acknowledgement(wiring.Component):
    """Ends a request, and reports its outcome: `concluded` is 1 for one cycle.

    RECORD takes two cycles after `start`. In the first, `settle` is 1: session and table must become `session_next` and
    `table_next`. In the second, `record` and `write_session` are 1: the rows of session and table must be written. In
    the cycle after that, `write_answer` is 1 if the request `counts`: `answer` must be written to the reply cache.
    REPEAT takes one cycle, in which
    `cached` must be the answer of the request's number and `write_session` is 1. FAULT takes one cycle and writes
    nothing.

    The status describes the priorities as they are now, or for a SAMPLE those that it was `sampled_from`.

    Then `answers` offers the answer. A request that is answered with data has none, and is not reported here: FETCH,
    LOAD, and the outcome OVERWRITTEN. A FAULT has one at most every `NOTICE_INTERVAL_US` at each port. `done` is 1 for
    one cycle, when the answer is taken, or else with the step before. The request's port and time must be there in the
    cycle of `start`.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "closing": In(Closing),
                "request": In(Request(replay)),
                "outcome": In(ReplayOutcome),
                "counts": In(1),
                "session": In(Session),
                "table": In(TableState),
                "sampled_from": In(PrioritySummary),
                "priorities": In(PrioritySummary),
                "filled": In(range(replay.capacity + 1)),
                "results_done": In(16),
                "results_stale": In(16),
                "settle": Out(1),
                "session_next": Out(Session),
                "table_next": Out(TableState),
                "record": Out(1),
                "write_session": Out(1),
                "write_answer": Out(1),
                "answer": Out(Answer),
                "cached": In(Answer),
                "list": In(range(list_rows(replay))),
                "challenge": In(32),
                "answers": Out(stream.Signature(OutgoingAnswer(replay))),
                "concluded": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, kind = self.request, kind_of(self.request.frame)
        now_us = request.now_us
        offered, composed, port = Signal(Answer), Signal(Answer), request.arrived.port
        # The answer is written from a register, where its parity is found.
        m.d.comb += self.answer.eq(offered)
        m.d.sync += self.write_answer.eq(self.record & self.counts)
        # When each port had its last answer to a fault, and whether it has had one.
        m.submodules.noticed_us = memory = Memory(shape=32, depth=PORTS_MAX, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        noticed, noticed_us, notice = Signal(PORTS_MAX), memory.read_port(domain="comb"), memory.write_port()
        may_notice = Signal()
        m.d.comb += [noticed_us.addr.eq(port), notice.addr.eq(port), notice.data.eq(now_us)]
        m.d.sync += may_notice.eq(
            ~noticed.bit_select(port, 1) | ((now_us - noticed_us.data)[:32] >= NOTICE_INTERVAL_US)
        )
        self._advance(m, kind)
        self._compose(m, kind, composed)
        self._address(m, offered)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    with m.Switch(self.closing):
                        with m.Case(Closing.RECORD):
                            m.next = "SETTLE"
                        with m.Case(Closing.REPEAT):
                            m.next = "REPEAT"
                        with m.Case(Closing.FAULT):
                            m.next = "FAULT"
            with m.State("SETTLE"):
                m.d.comb += self.settle.eq(1)
                m.next = "RECORD"
            with m.State("RECORD"):
                m.d.comb += [self.record.eq(1), self.write_session.eq(1)]
                m.d.sync += offered.eq(composed)
                with m.If(kind.matches(Kind.FETCH, Kind.LOAD) | (self.outcome == ReplayOutcome.OVERWRITTEN)):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.comb += self.concluded.eq(1)
                    m.next = "ANSWER"
            with m.State("REPEAT"):
                m.d.comb += [self.write_session.eq(1), self.concluded.eq(1)]
                m.d.sync += offered.eq(self.cached)
                m.next = "ANSWER"
            with m.State("FAULT"):
                m.d.comb += self.concluded.eq(1)
                m.d.sync += [
                    offered.eq(0),
                    offered.status.outcome.eq(self.outcome),
                    offered.kind.eq(request.frame.kind),
                    offered.table.eq(request.frame.table),
                ]
                with m.If(may_notice):
                    m.d.comb += notice.en.eq(1)
                    m.d.sync += noticed.bit_select(port, 1).eq(1)
                    m.next = "ANSWER"
                with m.Else():
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
            with m.State("ANSWER"):
                m.d.comb += self.answers.valid.eq(1)
                with m.If(self.answers.ready):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

    def _advance(self, m, kind):
        """Assign session and table as they are when the request's number is used up."""
        session, table = self.session, self.table
        m.d.comb += [self.session_next.eq(session), self.table_next.eq(table)]
        with m.If(self.counts):
            m.d.comb += [
                self.session_next.next.eq(session.next + 1),
                self.session_next.cached.eq(session.cached + (session.cached != self.replay.cached_answers)),
            ]
            with m.If(kind.matches(*TICKETED) & (self.outcome == ReplayOutcome.DONE)):
                m.d.comb += self.table_next.ticket.eq(Mux(table.ticket == LAST_TICKET, 1, table.ticket + 1))

    def _compose(self, m, kind, answer):
        """Assign the answer of a request that was decided on."""
        table, session = self.table, self.session
        done, status = self.outcome == ReplayOutcome.DONE, layout(STATUS)
        sampled = done & (kind == Kind.SAMPLE)  # the status describes the priorities that were sampled from
        fields = {
            "outcome": self.outcome,
            "lowest": Mux(sampled, self.sampled_from.lowest, self.priorities.lowest),
            "highest": Mux(sampled, self.sampled_from.highest, self.priorities.highest),
            "publisher": table.publisher,
            "next": session.next,
            "adds": table.adds,
            "ticket": table.ticket,
            "total": Mux(sampled, self.sampled_from.total, self.priorities.total),
            "sampled": table.sampled,
            "done": self.results_done,
            "stale": self.results_stale,
            "written": session.written,
            "oldest": session.oldest,
            "version": table.version,
            "start": table.start,
            "units": table.units,
            "filled": self.filled,
            "nonce": session.nonce,
        }
        assert fields.keys() == set(STATUS.names) and status.size == 8 * STATUS.itemsize
        m.d.comb += [answer.status[name].eq(value) for name, value in fields.items()]
        m.d.comb += [
            answer.kind.eq(kind),
            answer.table.eq(self.request.frame.table),
            answer.rows.eq(Mux(done & kind.matches(Kind.SAMPLE, Kind.LIST), self.results_done, 0)),
        ]

    def _address(self, m, offered):
        """Assign the destination of the answer."""
        frame, outgoing = self.request.frame, self.answers.payload
        m.d.comb += [
            outgoing.answer.eq(offered),
            outgoing.port.eq(self.request.arrived.port),
            outgoing.address.mac.eq(frame.eth_src),
            outgoing.address.ip.eq(frame.ip_src),
            outgoing.address.udp.eq(frame.udp_src),
            outgoing.session.eq(frame.session),
            outgoing.seq.eq(frame.seq),
            outgoing.token.eq(frame.token),
            outgoing.ticket.eq(Mux(offered.status.outcome == ReplayOutcome.CHALLENGE, self.challenge, 0)),
            outgoing.fragments.eq(frame.fragments),
            outgoing.list.eq(self.list),
        ]

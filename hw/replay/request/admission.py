"""The decision whether a request is carried out: docs/replay.md, section 3, as logic."""

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interface.layout import layout
from hw.replay.request.record import PARAMETER_ROWS, ROW_BITS, TableState, kind_of, view_as
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire.replay import LIMITS, LOAD, PUBLISH, REBUILD, REPLAY_FRAME, SAMPLE, WRITE, Kind, ReplayOutcome

__all__ = ["Admission"]

TICKETED = (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)
"""Kinds that may wait for a ticket of their table."""


def in_log(start, units, session):
    """Return whether all `units` from `start` on are in the session's log. Positions in a log are serial numbers of 32
    bits."""
    return (start - session.oldest)[:32] + units <= (session.written - session.oldest)[:32]


class Admission(wiring.Component):
    """Decides the outcome of a well-formed request of any kind but OPEN.

    `session` is the requester's session, `other` the session whose log the request reads, `product` the request's count
    times the table's ratio. `intact` and `restored` are those of the table's sampler. `session_corrupt`: the
    requester's row has a bit error, so the session is no client's. `other_corrupt`, 1 cycle after `other`: that row has
    a bit error, so the log has no units. `answer_corrupt`, 1 cycle later, too: the cached answer of the request's
    number has a bit error, and `answer_lost` is 1 if the request is a repeat that needs it. Outputs describe the inputs
    of 1 cycle before: `outcome`; `known`: session and token belong together; `enough`: the table holds as many items as
    its limits ask for; `counts`: the request uses up its number, for which `ordered` must stay through both cycles;
    `reads_log`: the request reads a log. A FETCH of stale handles is DONE here: handles are checked when they are read.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "frame": In(layout(REPLAY_FRAME)),
                "parameters": In(ROW_BITS * PARAMETER_ROWS),
                "session": In(Session),
                "session_corrupt": In(1),
                "other": In(Session),
                "other_corrupt": In(1),
                "answer_corrupt": In(1),
                "table": In(TableState),
                "filled": In(range(replay.capacity + 1)),
                "intact": In(1),
                "restored": In(range(replay.capacity + 1)),
                "product": In(48),
                "ordered": In(1),
                "outcome": Out(ReplayOutcome),
                "known": Out(1),
                "counts": Out(1),
                "enough": Out(1),
                "reads_log": Out(1),
                "answer_lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay, frame, session, table, ordered = self.replay, self.frame, self.session, self.table, self.ordered
        kind = kind_of(frame)
        sample = view_as(SAMPLE, self.parameters)
        known, enough = Signal(), Signal()
        m.d.comb += [
            known.eq(
                session.open
                & (session.nonce[:32] == frame.token)
                & (frame.session < replay.sessions)
                & ~self.session_corrupt
            ),
            enough.eq(self.filled >= table.size),
        ]
        m.d.sync += [
            self.known.eq(known),
            self.enough.eq(enough),
            self.reads_log.eq(kind.matches(Kind.LOAD, Kind.SHOUT)),
        ]

        # The distances of the request's number from the next one, ahead and behind (RFC 1982).
        ahead_by, behind_by = Signal(32), Signal(32)
        not_next, recent = Signal(), Signal.like(session.cached)
        m.d.comb += [
            ahead_by.eq(frame.seq - session.next),
            behind_by.eq(session.next - frame.seq),
            recent.eq(behind_by),
            not_next.eq(frame.seq != session.next),
        ]
        is_recent = ~(behind_by >> len(recent)).any() & (recent != 0) & (recent <= session.cached)

        samples, writes = kind == Kind.SAMPLE, kind == Kind.WRITE
        reads_log, log_lacks = kind.matches(Kind.LOAD, Kind.SHOUT), self._log_lacks(kind)
        exceeds_rate, log_length = self._exceeds_rate(m, kind, enough), Signal(32)
        m.d.comb += log_length.eq(session.written + frame.count - view_as(WRITE, self.parameters).oldest)
        # The first outcome that holds is the request's.
        for outcome, holds in reversed(
            [
                (ReplayOutcome.SESSION, ~known),
                (ReplayOutcome.REPEATED, ordered & is_recent),
                (ReplayOutcome.OLD, ordered & ahead_by[31]),
                (ReplayOutcome.AHEAD, ordered & not_next),
                (ReplayOutcome.TICKET, kind.matches(*TICKETED) & (frame.ticket != 0) & (frame.ticket != table.ticket)),
                (ReplayOutcome.CORRUPT, kind.matches(Kind.SAMPLE, Kind.LIST) & ~self.intact),
                (ReplayOutcome.ITEMS, samples & ((table.adds < sample.items) | ~enough)),
                (ReplayOutcome.EMPTY, samples & (table.total == 0)),
                (ReplayOutcome.RATE, exceeds_rate),
                (ReplayOutcome.RANGE, self._out_of_range(m, kind)),
                (ReplayOutcome.MEMORY, writes & (log_length > replay.log_units)),
                (ReplayOutcome.OVERWRITTEN, reads_log & log_lacks),
                (ReplayOutcome.DONE, Const(1)),
            ]
        ):
            held = Signal(name=f"is_{outcome.name.lower()}")
            m.d.sync += held.eq(holds)
            if outcome == ReplayOutcome.OVERWRITTEN:
                held = held | self.reads_log & self.other_corrupt
            if outcome == ReplayOutcome.REPEATED:  # without its answer, a repeat is OLD
                m.d.comb += self.answer_lost.eq(self.known & held & self.answer_corrupt)
                held = held & ~self.answer_corrupt
            with m.If(held):
                m.d.comb += self.outcome.eq(outcome)
        m.d.comb += self.counts.eq(
            ordered
            & self.outcome.matches(ReplayOutcome.DONE, ReplayOutcome.RANGE, ReplayOutcome.MEMORY, ReplayOutcome.CORRUPT)
        )
        return m

    def _exceeds_rate(self, m, kind, enough):
        """Whether the request would leave the limits of samples for each item (`ratio`, `behind`, `ahead`)."""
        table, samples, adds = self.table, kind == Kind.SAMPLE, kind == Kind.ADD
        behind, ahead = table.behind << 16, table.ahead << 16
        wanted = Signal(signed(58))
        m.d.comb += wanted.eq(Mux(samples, (self.frame.count << 16) - behind, self.product + table.credit - ahead))
        return (table.ratio != 0) & (samples & (wanted > table.credit) | adds & enough & (wanted > 0))

    def _out_of_range(self, m, kind):
        """Whether a parameter of a WRITE, PUBLISH, LIMIT or REBUILD has a value that is not allowed."""
        replay, session = self.replay, self.session
        write, publish, limits = (view_as(record, self.parameters) for record in (WRITE, PUBLISH, LIMITS))
        in_use, rebuild = Signal(32), view_as(REBUILD, self.parameters)
        m.d.comb += in_use.eq(session.written - session.oldest)
        wrong_slots = (rebuild.slot != 0) & (rebuild.slot != self.restored) | (
            rebuild.slot + self.frame.count > replay.capacity
        )
        return Mux(
            kind == Kind.WRITE,
            (write.start != session.written) | ((write.oldest - session.oldest)[:32] > in_use),
            Mux(
                kind == Kind.PUBLISH,
                ~in_log(publish.start, publish.units, session) | (publish.version == 0) | (publish.units == 0),
                (kind == Kind.LIMIT) & ((limits.times >> replay.sample_count_bits) != 0)
                | (kind == Kind.REBUILD) & wrong_slots,
            ),
        )

    def _log_lacks(self, kind):
        """Whether the log that a LOAD or SHOUT reads is not there, not the requester's, or lacks a unit."""
        load = view_as(LOAD, self.parameters)
        not_own = (kind == Kind.SHOUT) & (load.session != self.frame.session)
        return not_own | (load.session >= self.replay.sessions) | ~in_log(load.start, self.frame.count, self.other)

"""What is remembered of a request when it is over, and the frames that tell of it."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal
from amaranth.utils import exact_log2

from hw.interface.layout import layout
from iswitch.wire import NOTICE_INTERVAL_US, Type, version_type
from iswitch.wire.replay import ROW_BYTES, STATUS, UNIT_BYTES, Fate, Kind

__all__ = ["send", "settle"]

UNIT_ROWS = UNIT_BYTES // ROW_BYTES


def settle(m: Module, s: SimpleNamespace) -> None:
    """What is to be remembered of a request."""
    replay, table, session, kept = s.replay, s.table, s.session, s.kept
    tickets = s.kind.matches(Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)
    done = s.fate == Fate.DONE
    sampled = done & (s.kind == Kind.SAMPLE)  # what is told of priorities is what was drawn from
    composed, status = Signal.like(s.answer), layout(STATUS)
    shown = {
        "reason": s.fate,
        "lowest": Mux(sampled, s.lowest, s.tables.lowest),
        "highest": Mux(sampled, s.highest, s.tables.highest),
        "publisher": table.publisher,
        "next": session.next,
        "adds": table.adds,
        "ticket": table.ticket,
        "total": Mux(sampled, s.drawn, table.total),
        "draws": table.draws,
        "done": s.done,
        "stale": s.stale,
        "written": session.written,
        "oldest": session.oldest,
        "version": table.version,
        "start": table.start,
        "units": table.units,
        "filled": s.tables.filled,
        "nonce": session.nonce,
    }
    assert shown.keys() == set(STATUS.names) and status.size == 8 * STATUS.itemsize
    m.d.comb += [composed.status[name].eq(value) for name, value in shown.items()]
    m.d.comb += [
        composed.kind.eq(s.kind),
        composed.table.eq(s.frame.table),
        kept.put_answer.eq(composed),
        composed.rows.eq(Mux(done & s.kind.matches(Kind.SAMPLE, Kind.LIST), s.done, 0)),
    ]
    with m.State("SETTLE"):
        with m.If(s.counts):
            m.d.sync += [
                session.next.eq(session.next + 1),
                session.kept.eq(session.kept + (session.kept != replay.kept)),
            ]
            with m.If(tickets & done):
                m.d.sync += table.ticket.eq(Mux(table.ticket == (1 << 32) - 1, 1, table.ticket + 1))
        m.next = "RECORD"
    with m.State("RECORD"):
        m.d.comb += [s.sessions.write.eq(1), kept.put.eq(s.counts), s.fated.eq(1)]
        m.d.sync += s.answer.eq(composed)
        for k, state in enumerate(s.states):
            with m.If(s.tables.table == k):
                m.d.sync += state.eq(table)
        m.next = "DRAIN"
        with m.If(s.answers):
            m.next = "ANSWER"
    with m.State("KEPT"):
        m.d.comb += [s.sessions.write.eq(1), s.fated.eq(1)]
        m.d.sync += [s.answer.eq(kept.answer), s.list.eq(kept.index * replay.draws)]
        m.next = "ANSWER"
    with m.State("FAULT"):
        m.d.comb += s.fated.eq(1)
        m.d.sync += [
            s.answer.status.reason.eq(s.fate),
            s.answer.kind.eq(s.frame.kind),
            s.answer.table.eq(s.frame.table),
        ]
        m.next = "DRAIN"
        with m.If(~s.noticed | ((s.now - s.noticed_us)[:32] >= NOTICE_INTERVAL_US)):
            m.d.sync += [s.noticed.eq(1), s.noticed_us.eq(s.now)]
            m.next = "ANSWER"
    with m.State("ANSWER"):
        m.d.comb += s.answerer.answers.valid.eq(1)
        with m.If(s.answerer.answers.ready):
            m.next = "DRAIN"
    with m.State("DRAIN"):
        m.d.comb += s.inlet.rows.ready.eq(~s.ended)
        m.d.sync += s.at.eq(0)
        with m.If(s.ended):
            m.next = "HEAD"


def send(m: Module, s: SimpleNamespace) -> None:
    """Frames out: answers, or data while none is under way."""
    outlet, answerer, frame, kept = s.outlet, s.answerer, s.frame, s.kept
    asked, head = answerer.answers.payload, s.head.payload
    header = head.header
    m.d.comb += [
        asked.answer.eq(s.answer),
        asked.port.eq(s.arrived.port),
        asked.address.mac.eq(frame.eth_src),
        asked.address.ip.eq(frame.ip_src),
        asked.address.udp.eq(frame.udp_src),
        asked.session.eq(frame.session),
        asked.seq.eq(frame.seq),
        asked.token.eq(frame.token),
        asked.fragments.eq(frame.fragments),
        asked.list.eq(s.list),
        answerer.row.eq(kept.row),
        kept.at.eq(Mux(answerer.busy, answerer.at, s.list_at)),
        head.port.eq(asked.port),
        head.address.eq(asked.address),
        header.version_type.eq(version_type(Type.DATA)),
        header.kind.eq(s.kind),
        header.session.eq(frame.session),
        header.table.eq(frame.table),
        header.seq.eq(frame.seq),
        header.ticket.eq(s.gone),
        header.count.eq(head.rows >> exact_log2(UNIT_ROWS)),
        header.token.eq(frame.token),
        header.fragments.eq(Mux(s.kind == Kind.FETCH, 0, s.load.session)),
    ]
    with m.If((s.kind == Kind.SHOUT) & (s.fate == Fate.DONE)):
        m.d.comb += [
            head.port.eq(s.to.port),
            head.address.eq(s.to.address),
            header.session.eq(s.recipient),
            header.token.eq(s.to.nonce[:32]),
            header.seq.eq(s.load.start),
        ]
    for name in ("heads", "rows"):
        theirs, mine, out = getattr(answerer, name), s.head if name == "heads" else s.data, getattr(outlet, name)
        m.d.comb += [
            out.payload.eq(Mux(answerer.busy, theirs.payload, mine.payload)),
            theirs.ready.eq(out.ready & answerer.busy),
            out.valid.eq(Mux(answerer.busy, theirs.valid, mine.valid)),
            mine.ready.eq(out.ready & ~answerer.busy),
        ]

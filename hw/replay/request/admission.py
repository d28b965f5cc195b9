"""What becomes of a request: docs/replay.md, section 3, as logic."""

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hw.interface.layout import layout
from hw.replay.request.sessions import Session
from hw.stream.packet import LENGTH_BITS
from iswitch.config import Replay
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import (
    BODY_BYTES,
    LIMITS,
    LOAD,
    ORDERED,
    PAYLOAD_BYTES,
    PUBLISH,
    REPLAY_FRAME,
    ROW_BYTES,
    SAMPLE,
    SAMPLES_PER_FRAGMENT,
    UNIT_BYTES,
    WRITE,
    Fate,
    Kind,
)

__all__ = ["PARAMETER_ROWS", "HeaderCheck", "Admission", "TableState", "view_as", "kind_of", "there"]

UNIT_ROWS, HEAD_ROWS = UNIT_BYTES // ROW_BYTES, FRAME_BYTES // ROW_BYTES
PARAMETER_ROWS = SAMPLE.itemsize // ROW_BYTES
LEADS = {
    Kind.OPEN: 1,
    Kind.WRITE: 1,
    Kind.SAMPLE: 4,
    Kind.PUBLISH: 2,
    Kind.LIMIT: 3,
    Kind.LOAD: 1,
    Kind.LIST: 1,
    Kind.SHOUT: 1,
}
"""Rows of a body that are looked at before anything is done."""
TICKETED = (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)


class TableState(data.Struct):
    """What a table has beside its sampler; `credit` in 2^-16 draws, `publisher`, `start`, `units` where its parameters
    are."""

    adds: 32
    draws: 32
    ticket: 32
    total: 64
    size: 32
    ratio: 32
    behind: 32
    ahead: 32
    times: 16
    credit: signed(56)
    version: 32
    publisher: 8
    start: 32
    units: 32


def view_as(record, lead):
    """The first rows of a body as a record."""
    return data.View(layout(record), lead[: 8 * record.itemsize])


def there(start, units, session):
    """Whether units are in a session's log; serial numbers."""
    return (start - session.oldest)[:32] + units <= (session.written - session.oldest)[:32]


def times(count, constant: int):
    """Shifts and sums, no multiplier: it would be shared with others, and every way to it lead through the choice."""
    return sum((count << bit for bit in range(constant.bit_length()) if constant >> bit & 1), Const(0))


def kind_of(frame):
    """The bits that tell kinds apart: all that matters of a request whose kind is one."""
    return frame.kind[: bits_for(max(Kind))]


def among(kind, *kinds: Kind):
    """Whether `kind` is one of these."""
    return kind.matches(*kinds)


class HeaderCheck(wiring.Component):
    """What a request's header alone says: which kind, how long a body should be, what is wrong with it.

    `fault`: `fate` says which, of what the inputs were 1 cycle before. `leads`: rows of the body to look at first.
    `ordered`, `answers` with a list.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "frame": In(layout(REPLAY_FRAME)),
                "length": In(LENGTH_BITS),
                "fault": Out(1),
                "fate": Out(Fate),
                "leads": Out(range(PARAMETER_ROWS + 1)),
                "ordered": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay, frame = self.replay, self.frame
        count, kind = frame.count, frame.kind
        most_rows = BODY_BYTES // ROW_BYTES
        item_rows = 1 + replay.record_bytes // ROW_BYTES
        # Of each kind: the most that count may be (0: it must be 0), rows of the body for each, and rows before.
        forms = {
            Kind.OPEN: (0, 0, 1),
            Kind.CLOSE: (0, 0, 0),
            Kind.WRITE: (PAYLOAD_BYTES // UNIT_BYTES, UNIT_ROWS, 1),
            Kind.ADD: (most_rows // item_rows, item_rows, 0),
            Kind.SAMPLE: (replay.draws, 0, 4),
            Kind.UPDATE: (most_rows, 1, 0),
            Kind.PUBLISH: (0, 0, 2),
            Kind.LIMIT: (0, 0, 3),
            Kind.SKIP: (0, 0, 0),
            Kind.FETCH: (replay.records, 1, 0),
            Kind.LOAD: (PAYLOAD_BYTES // UNIT_BYTES, 0, 1),
            Kind.LOOK: (0, 0, 0),
            Kind.LIST: (SAMPLES_PER_FRAGMENT, 0, 1),
            Kind.SHOUT: (PAYLOAD_BYTES // UNIT_BYTES, 0, 1),
        }
        some, fits, over = Signal(), Signal(), Signal()
        # Compared before it is known which kind it is, and what is before the rows is taken from the one side while the
        # other is multiplied.
        lengths = {
            (each, before): ~self.length[:3].any() & (self.length[3:] - (before + HEAD_ROWS) == times(count[:8], each))
            for each, before in {form[1:] for form in forms.values()}
        }
        overs = {most: count > most for most, *_ in forms.values()}
        with m.Switch(kind):
            for name, (most, *form) in forms.items():
                with m.Case(name):
                    m.d.comb += [
                        some.eq(most != 0),
                        over.eq(overs[most]),
                        fits.eq(lengths[tuple(form)]),
                        self.leads.eq(LEADS.get(name, 0)),
                    ]
        m.d.comb += [
            self.ordered.eq(among(kind, *ORDERED)),
            self.fate.eq(Fate.DONE),
            self.fault.eq(self.fate != Fate.DONE),
        ]
        no_kind, no_table, no_length, too_many, too_few = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            no_kind.eq(kind > max(Kind)),
            no_table.eq(frame.table >= replay.tables),
            no_length.eq(~fits),
            too_many.eq(over),
            too_few.eq((count == 0) & some),
        ]
        with m.If(no_kind):
            m.d.comb += self.fate.eq(Fate.KIND)
        with m.Elif(no_table):
            m.d.comb += self.fate.eq(Fate.TABLE)
        with m.Elif(no_length | too_many | too_few):
            m.d.comb += self.fate.eq(Fate.LENGTH)
        return m


class Admission(wiring.Component):
    """What becomes of a well-formed request of whoever is in `session`'s place; `other` is the session whose log it
    reads, `product` count times the table's ratio. Outputs are those of what the inputs were 1 cycle before, but
    `counts`, which needs `ordered` in both. `known`: its sender is who it says; `counts`: its number is used up;
    `enough`: there are as many items as the table's limits ask for. It is not for OPEN, and a FETCH is DONE, whatever
    is gone."""

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "frame": In(layout(REPLAY_FRAME)),
                "lead": In(64 * PARAMETER_ROWS),
                "session": In(Session),
                "other": In(Session),
                "table": In(TableState),
                "filled": In(range(replay.capacity + 1)),
                "product": In(48),
                "ordered": In(1),
                "fate": Out(Fate),
                "known": Out(1),
                "counts": Out(1),
                "enough": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay, frame, session, table = self.replay, self.frame, self.session, self.table
        kind, count = kind_of(frame), frame.count
        sample, limits, write, publish = (view_as(record, self.lead) for record in (SAMPLE, LIMITS, WRITE, PUBLISH))
        load = view_as(LOAD, self.lead)
        since, ago = Signal(32), Signal(32)
        known, enough, apart, near = Signal(), Signal(), Signal(), Signal.like(session.kept)
        m.d.comb += [
            known.eq(session.open & (session.nonce[:32] == frame.token) & (frame.session < replay.sessions)),
            since.eq(frame.seq - session.next),
            ago.eq(session.next - frame.seq),
            near.eq(ago),
            apart.eq(frame.seq != session.next),
            enough.eq(self.filled >= table.size),
        ]
        m.d.sync += [self.known.eq(known), self.enough.eq(enough)]
        tickets, draws, adds, writes = among(kind, *TICKETED), kind == Kind.SAMPLE, kind == Kind.ADD, kind == Kind.WRITE
        wanted = Signal(signed(58))
        behind, ahead = table.behind << 16, table.ahead << 16
        m.d.comb += wanted.eq(Mux(draws, (count << 16) - behind, self.product + table.credit - ahead))
        rated = (table.ratio != 0) & (draws & (wanted > table.credit) | adds & enough & (wanted > 0))
        kept, length = Signal(32), Signal(32)
        m.d.comb += [kept.eq(session.written - session.oldest), length.eq(session.written + count - write.oldest)]
        out_of_range = Mux(
            writes,
            (write.start != session.written) | ((write.oldest - session.oldest)[:32] > kept),
            Mux(
                kind == Kind.PUBLISH,
                ~there(publish.start, publish.units, session) | (publish.version == 0) | (publish.units == 0),
                (kind == Kind.LIMIT) & ((limits.times >> replay.times_bits) != 0),
            ),
        )
        reads = among(kind, Kind.LOAD, Kind.SHOUT)
        others = (kind == Kind.SHOUT) & (load.session != frame.session)
        missing = others | (load.session >= replay.sessions) | ~there(load.start, count, self.other)
        ordered = self.ordered
        for fate, holds in reversed(
            [
                (Fate.SESSION, ~known),
                (Fate.REPEATED, ordered & ~(ago >> len(near)).any() & (near != 0) & (near <= session.kept)),
                (Fate.OLD, ordered & since[31]),
                (Fate.AHEAD, ordered & apart),
                (Fate.TICKET, tickets & (frame.ticket != 0) & (frame.ticket != table.ticket)),
                (Fate.ITEMS, draws & ((sample.items != 0) & (table.adds - sample.items)[31] | ~enough)),
                (Fate.EMPTY, draws & (table.total == 0)),
                (Fate.RATE, rated),
                (Fate.RANGE, out_of_range),
                (Fate.MEMORY, writes & (length > replay.log_units)),
                (Fate.OVERWRITTEN, reads & missing),
                (Fate.DONE, Const(1)),
            ]
        ):
            held = Signal(name=f"is_{fate.name.lower()}")
            m.d.sync += held.eq(holds)
            with m.If(held):
                m.d.comb += self.fate.eq(fate)
        m.d.comb += self.counts.eq(ordered & among(self.fate, Fate.DONE, Fate.RANGE, Fate.MEMORY))
        return m

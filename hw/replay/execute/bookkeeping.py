"""What a request changes in its session and its table at once, before an executor moves any data."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.replay.request.record import Request, TableState, kind_of, view_as
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire.replay import LIMITS, PUBLISH, WRITE, Kind

__all__ = ["Bookkeeping"]


class Bookkeeping(wiring.Component):
    """Gives the rows of session and table as an admitted request leaves them when it begins.

    Combinational. `product` is the request's count times the table's ratio; `enough`: the table holds as many items as
    its limits ask for. Items that are added and priorities that change are counted as they come, by the engine.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "request": In(Request(replay)),
                "session": In(Session),
                "table": In(TableState),
                "product": In(48),
                "enough": In(1),
                "session_next": Out(Session),
                "table_next": Out(TableState),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, table, session = self.request, self.table, self.session
        count = request.frame.count
        write, publish, limits = (view_as(record, request.parameters) for record in (WRITE, PUBLISH, LIMITS))
        m.d.comb += [self.session_next.eq(session), self.table_next.eq(table)]
        with m.Switch(kind_of(request.frame)):
            with m.Case(Kind.CLOSE):
                m.d.comb += self.session_next.open.eq(0)
            with m.Case(Kind.WRITE):
                m.d.comb += [
                    self.session_next.oldest.eq(write.oldest),
                    self.session_next.written.eq(session.written + count),
                ]
            with m.Case(Kind.ADD):
                with m.If((table.ratio != 0) & self.enough):
                    m.d.comb += self.table_next.credit.eq(table.credit + self.product)
            with m.Case(Kind.SAMPLE):
                m.d.comb += self.table_next.sampled.eq(table.sampled + count)
                with m.If(table.ratio != 0):
                    m.d.comb += self.table_next.credit.eq(table.credit - (count << 16))
            with m.Case(Kind.PUBLISH):
                m.d.comb += [
                    self.table_next.publisher.eq(request.session),
                    self.table_next.version.eq(publish.version),
                    self.table_next.start.eq(publish.start),
                    self.table_next.units.eq(publish.units),
                ]
            with m.Case(Kind.LIMIT):
                m.d.comb += [
                    *(self.table_next[name].eq(limits[name]) for name in ("size", "ratio", "behind", "ahead", "times")),
                    self.table_next.credit.eq(0),
                    self.table_next.limited.eq(table.limited | (limits.times != 0)),
                ]
        return m

"""Sends answers, while the next requests are carried out."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.replay.reply.cache import Answer, list_rows
from hw.replay.reply.framer import FrameHead
from iswitch.config import Replay
from iswitch.wire import Type, version_type
from iswitch.wire.replay import ROW_BYTES, SAMPLED_ROW, SAMPLES_PER_FRAGMENT, STATUS, Kind

__all__ = ["AnswerSender", "OutgoingAnswer"]

ROW_BITS, STATUS_ROWS = 8 * ROW_BYTES, STATUS.itemsize // ROW_BYTES


class OutgoingAnswer(data.StructLayout):
    """An answer on its way to who asked: with the set of fragments that are wanted, and where its list is."""

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "answer": Answer,
                "port": 4,
                "address": Address,
                "session": 8,
                "seq": 32,
                "token": 32,
                "fragments": 16,
                "list": range(list_rows(replay)),
            }
        )


class AnswerSender(wiring.Component):
    """One answer after another: for each fragment that is wanted a head, and then status and rows of the list as its
    body, one a cycle.

    `list` is where the list of the answer under way begins, while `busy`; it must not change until then. `at` and `row`
    are those of `ReplyCache`, which this has for itself while it is busy.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "answers": In(stream.Signature(OutgoingAnswer(replay))),
                "row_address": Out(range(list_rows(replay))),
                "row": In(layout(SAMPLED_ROW)),
                "heads": Out(stream.Signature(FrameHead)),
                "rows": Out(stream.Signature(ROW_BITS)),
                "list": Out(range(list_rows(replay))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asked = Signal.like(self.answers.payload)
        answer, head = asked.answer, self.heads.payload
        fragment, rest, at = Signal(range(self.replay.fragments + 1)), Signal(16), Signal(range(STATUS_ROWS))
        rows, left = Signal(8), Signal(8)  # of the list in this fragment; of those to go
        begin, place = (
            Signal.like(self.row_address),
            Signal.like(self.row_address),
        )  # of the fragment's list; of its row that is there
        least = lambda count: Mux(count > SAMPLES_PER_FRAGMENT, SAMPLES_PER_FRAGMENT, count)
        sampled = (answer.kind == Kind.SAMPLE) & (answer.rows != 0)
        header = head.header
        m.d.comb += [
            self.list.eq(asked.list),
            head.port.eq(asked.port),
            head.address.eq(asked.address),
            head.rows.eq(STATUS_ROWS + rows),
            header.version_type.eq(version_type(Type.ANSWER)),
            header.kind.eq(answer.kind),
            header.session.eq(asked.session),
            header.table.eq(answer.table),
            header.seq.eq(asked.seq),
            header.count.eq(rows),
            header.fragments.eq(fragment),
            header.token.eq(asked.token),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += self.answers.ready.eq(1)
                came = self.answers.payload
                m.d.sync += [
                    asked.eq(came),
                    fragment.eq(0),
                    rest.eq(came.answer.rows),
                    rows.eq(least(came.answer.rows)),
                    begin.eq(came.list),
                ]
                with m.If(self.answers.valid):
                    m.next = "HEAD"
            with m.State("HEAD"):
                with m.If(sampled & ~asked.fragments.bit_select(fragment, 1)):
                    m.next = "NEXT"
                with m.Else():
                    m.d.comb += self.heads.valid.eq(1)
                    m.d.sync += at.eq(0)
                    with m.If(self.heads.ready):
                        m.next = "STATUS"
            with m.State("STATUS"):
                m.d.comb += [
                    self.rows.valid.eq(1),
                    self.rows.payload.eq(answer.status.as_value().word_select(at, ROW_BITS)),
                    self.row_address.eq(begin),
                ]
                m.d.sync += [place.eq(begin), left.eq(rows - 1)]
                with m.If(self.rows.ready):
                    m.d.sync += at.eq(at + 1)
                    with m.If(at == STATUS_ROWS - 1):
                        m.next = "ROWS"
                        with m.If(rows == 0):
                            m.next = "NEXT"
            with m.State("ROWS"):
                ends = left == 0  # behind the last list there is nothing
                m.d.comb += [
                    self.rows.valid.eq(1),
                    self.rows.payload.eq(self.row),
                    self.row_address.eq(place + (self.rows.ready & ~ends)),
                ]
                m.d.sync += place.eq(self.row_address)
                with m.If(self.rows.ready):
                    m.d.sync += left.eq(left - 1)
                    with m.If(ends):
                        m.next = "NEXT"
            with m.State("NEXT"):
                after = (rest - SAMPLES_PER_FRAGMENT)[:16]
                m.d.sync += [
                    fragment.eq(fragment + 1),
                    rest.eq(after),
                    rows.eq(least(after)),
                    begin.eq(begin + SAMPLES_PER_FRAGMENT),
                ]
                m.next = "HEAD"
                with m.If(rest <= SAMPLES_PER_FRAGMENT):
                    m.next = "IDLE"
        return m

"""Sends answers while the next request is executed."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.replay.reply.cache import Answer, list_rows
from hw.replay.reply.framer import FrameHead, FrameWord
from iswitch.config import Replay
from iswitch.wire import Type, version_type
from iswitch.wire.replay import ROW_BYTES, SAMPLED_ROW, SAMPLES_PER_FRAGMENT, STATUS, Kind

__all__ = ["AnswerSender", "OutgoingAnswer"]

STATUS_ROWS = STATUS.itemsize // ROW_BYTES


class OutgoingAnswer(data.StructLayout):
    """An answer to be sent to its recipient, with the set of requested `fragments` and the address of its `list`'s
    first row."""

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "answer": Answer,
                "port": 4,
                "address": Address,
                "session": 8,
                "seq": 32,
                "token": 32,
                "ticket": 32,
                "fragments": 16,
                "list": range(list_rows(replay)),
            }
        )


class AnswerSender(wiring.Component):
    """Sends one answer after another: for each fragment a head, and then the status and rows of the list as its body.

    While `busy`, `list` is the first row of the list that is being sent, which must not change, and `row_address` and
    `listed`, the bus word of rows from there on 1 cycle later, own the reply cache's lists. `corrupt` says which rows
    of `listed` have a bit error. If such a row is sent, its word spoils its frame, and `spoil` is 1 in the next cycle,
    in which `list` is still the same. A new answer is taken only while not `busy`.

    Latency: a head is offered 1 cycle after its answer was taken. Then one word in each cycle, and 2 cycles between
    fragments; both outputs may stall.
    """

    def __init__(self, replay: Replay, *, bus_bits: int = 64):
        self.replay, self.bus_bits = replay, bus_bits
        self.rows_per_word = bus_bits // (8 * ROW_BYTES)
        super().__init__(
            {
                "answers": In(stream.Signature(OutgoingAnswer(replay))),
                "row_address": Out(range(list_rows(replay))),
                "listed": In(data.ArrayLayout(layout(SAMPLED_ROW), self.rows_per_word)),
                "corrupt": In(self.rows_per_word),
                "spoil": Out(1),
                "heads": Out(stream.Signature(FrameHead)),
                "words": Out(stream.Signature(FrameWord(bus_bits))),
                "list": Out(range(list_rows(replay))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        outgoing = Signal.like(self.answers.payload)
        answer, head = outgoing.answer, self.heads.payload
        status_words = STATUS_ROWS // self.rows_per_word
        fragment, rows_left, status_word = (
            Signal(range(self.replay.fragments + 1)),
            Signal(16),
            Signal(range(status_words)),
        )
        rows, left = Signal(8), Signal(8)  # rows of the list in this fragment, and those from the shown word on
        # Addresses of the fragment's first row, and of the first row of the word that is shown.
        first_row, shown_row = Signal.like(self.row_address), Signal.like(self.row_address)
        at_most_a_fragment = lambda count: Mux(count > SAMPLES_PER_FRAGMENT, SAMPLES_PER_FRAGMENT, count)
        in_fragments = (answer.kind == Kind.SAMPLE) & (answer.rows != 0)
        header = head.header
        m.d.comb += [
            self.list.eq(outgoing.list),
            head.port.eq(outgoing.port),
            head.address.eq(outgoing.address),
            head.rows.eq(STATUS_ROWS + rows),
            header.version_type.eq(version_type(Type.ANSWER)),
            header.kind.eq(answer.kind),
            header.session.eq(outgoing.session),
            header.table.eq(answer.table),
            header.seq.eq(outgoing.seq),
            header.count.eq(rows),
            header.fragments.eq(fragment),
            header.token.eq(outgoing.token),
            header.ticket.eq(outgoing.ticket),
        ]
        word, last_word = self.words.payload, Signal()
        m.d.comb += last_word.eq(left <= self.rows_per_word)  # no word follows the last of a list
        m.d.sync += self.spoil.eq(self.words.valid & self.words.ready & word.spoil)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += self.answers.ready.eq(1)
                accepted = self.answers.payload
                m.d.sync += [
                    outgoing.eq(accepted),
                    fragment.eq(0),
                    rows_left.eq(accepted.answer.rows),
                    rows.eq(at_most_a_fragment(accepted.answer.rows)),
                    first_row.eq(accepted.list),
                ]
                with m.If(self.answers.valid):
                    m.next = "HEAD"
            with m.State("HEAD"):
                with m.If(in_fragments & ~outgoing.fragments.bit_select(fragment, 1)):
                    m.next = "NEXT"
                with m.Else():
                    m.d.comb += self.heads.valid.eq(1)
                    m.d.sync += status_word.eq(0)
                    with m.If(self.heads.ready):
                        m.next = "STATUS"
            with m.State("STATUS"):
                m.d.comb += [
                    self.words.valid.eq(1),
                    word.data.eq(answer.status.as_value().word_select(status_word, self.bus_bits)),
                    self.row_address.eq(first_row),
                ]
                m.d.sync += [shown_row.eq(first_row), left.eq(rows)]
                with m.If(self.words.ready):
                    m.d.sync += status_word.eq(status_word + 1)
                    with m.If(status_word == status_words - 1):
                        m.next = "ROWS"
                        with m.If(rows == 0):
                            m.next = "NEXT"
            with m.State("ROWS"):
                m.d.comb += [
                    self.words.valid.eq(1),
                    word.data.eq(self.listed),
                    word.spoil.eq(Cat(self.corrupt[k] & (k < left) for k in range(self.rows_per_word)).any()),
                    self.row_address.eq(Mux(self.words.ready & ~last_word, shown_row + self.rows_per_word, shown_row)),
                ]
                m.d.sync += shown_row.eq(self.row_address)
                with m.If(self.words.ready):
                    m.d.sync += left.eq(left - self.rows_per_word)
                    with m.If(last_word):
                        m.next = "NEXT"
            with m.State("NEXT"):
                after = (rows_left - SAMPLES_PER_FRAGMENT)[:16]
                m.d.sync += [
                    fragment.eq(fragment + 1),
                    rows_left.eq(after),
                    rows.eq(at_most_a_fragment(after)),
                    first_row.eq(first_row + SAMPLES_PER_FRAGMENT),
                ]
                m.next = "HEAD"
                with m.If(rows_left <= SAMPLES_PER_FRAGMENT):
                    m.next = "IDLE"
        return m

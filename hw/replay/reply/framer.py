"""Frames of the replay service: a header, words of the body, and the row that holds the checksum's complement."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.interface.reply import ReplyRoute
from hw.stream.checksum import sum_halves
from hw.stream.packet import Packet, require_bus
from hw.stream.reduction import reaches, tree_sum
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire import ADDRESSES, FRAME_BYTES
from iswitch.wire.replay import BODY_BYTES, END, REPLAY_HEADER, ROW_BYTES, STATUS

__all__ = ["FRAME_ROWS", "ROW_BITS", "FrameHead", "FrameWord", "ReplyFramer", "queue_words"]

ROW_BITS = 8 * ROW_BYTES
BODY_ROWS = (BODY_BYTES + STATUS.itemsize) // ROW_BYTES
HEAD_ROWS = FRAME_BYTES // ROW_BYTES
FRAME_ROWS = HEAD_ROWS + BODY_ROWS + 1
"""Rows of the longest frame."""
ROW_SUM_BITS = 18
"""Bits of the plain sum of a row's four halves."""
TOTAL_BITS = (4 * FRAME_ROWS * 0xFFFF).bit_length()
"""Bits of the plain sum of a frame's halves."""


def queue_words(bus_bits: int) -> int:
    """Return the depth of a queue for the longest frame, a power of two."""
    return 1 << (-(-FRAME_ROWS * ROW_BITS // bus_bits) - 1).bit_length()


class FrameHead(data.Struct):
    """The recipient of a frame, its header, and the number of rows of its body."""

    port: 4
    address: Address
    header: layout(REPLAY_HEADER)
    rows: range(BODY_ROWS + 1)


class FrameWord(data.StructLayout):
    """A bus word of a frame's body; bytes behind the body have any value. `spoil`: a bit error was found in it, so the
    frame must not leave under a right checksum."""

    def __init__(self, bus_bits: int):
        super().__init__({"data": bus_bits, "spoil": 1})


class ReplyFramer(wiring.Component):
    """Makes a frame of each head and the next `words`. The port fills in the frame's addresses.

    The complement stands behind the body, so no frame is stored. Latency: the first word leaves 2 cycles after its head
    was taken. One word in each cycle, also from frame to frame. `o` may stall. Up to two words are accepted before
    their head; `words.ready` ends at registers. A word with `spoil` makes the complement of its frame wrong by one bit,
    so that each receiver drops the frame for its UDP checksum.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("ReplyFramer", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "heads": In(stream.Signature(FrameHead)),
                "words": In(stream.Signature(FrameWord(bus_bits))),
                "o": Out(stream.Signature(Packet(bus_bits, meta=ReplyRoute))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = buffer = SkidBuffer(FrameWord(self.bus_bits))
        connect(m, flipped(self.words), buffer.i)
        rows_per_word, advance = self.bus_bits // ROW_BITS, Signal()  # all words move on
        # A frame's words are chosen, then their rows are summed, then the sums are added: the word is at `o`.
        chosen, summed = (
            Signal(
                data.StructLayout(
                    {"data": self.bus_bits, "first": 1, "last": 1, "spoil": 1, "end": range(rows_per_word)}
                ),
                name=name,
            )
            for name in ("chosen", "summed")
        )
        is_chosen, is_summed, next_route = Signal(), Signal(), Signal(ReplyRoute)
        has_begun = self._choose(m, advance, buffer.o, chosen, is_chosen, next_route)
        sums = [Signal(ROW_SUM_BITS, name=f"sum_{k}") for k in range(rows_per_word)]
        total, spoiled, end = Signal(TOTAL_BITS), Signal(), Signal(range(rows_per_word))
        word, last, route = Signal(self.bus_bits), Signal(), Signal(ReplyRoute)
        m.d.comb += [advance.eq(~self.o.valid | self.o.ready), self.busy.eq(has_begun | is_summed | self.o.valid)]
        with m.If(advance):
            m.d.sync += [
                is_summed.eq(is_chosen),
                summed.eq(chosen),
                *(
                    each.eq(sum_halves(chosen.data.word_select(k, ROW_BITS), 0, ROW_BYTES))
                    for k, each in enumerate(sums)
                ),
                self.o.valid.eq(is_summed),
                word.eq(summed.data),
                last.eq(summed.last),
                end.eq(summed.end),
            ]
            with m.If(is_summed):
                m.d.sync += [
                    total.eq(Mux(summed.first, 0, total) + tree_sum(sums)),
                    spoiled.eq(~summed.first & spoiled | summed.spoil),
                    # The next frame's head is taken no earlier than this frame's last word leaves `summed`.
                    route.eq(next_route),
                ]
        folded, complement, out = Signal(17), Signal(16), self.o.payload
        m.d.comb += [
            folded.eq(total[:16] + total[16:]),
            complement.eq(~(folded[:16] + folded[16]) ^ spoiled),
            out.data.eq(word),
            out.last.eq(last),
            out.count.eq(Mux(last, (end + 1) << exact_log2(ROW_BYTES), self.bus_bits // 8)),
            out.meta.eq(route),
        ]
        with m.If(last):
            m.d.comb += out.data.word_select(end, ROW_BITS).eq(complement << ROW_BITS - 16)
        return m

    def _choose(self, m, advance, body, chosen, is_chosen, route):
        """Assign the next word of a frame, whether there is one, and the route of the frame. Return whether a frame has
        begun whose last word is still to be chosen."""
        given, rows_per_word = self.heads.payload, self.bus_bits // ROW_BITS
        head_words = HEAD_ROWS // rows_per_word
        image, later_words = (Signal(8 * FRAME_BYTES), Signal(8 * FRAME_BYTES - self.bus_bits, reset_less=True))
        head_left, rows_left = Signal(range(HEAD_ROWS)), Signal(range(BODY_ROWS + 1))
        # Of the next word of the body: the rows that belong to it, and whether the body ends with it. In registers,
        # because sums begin at them.
        kept_rows, ends_here, is_partial = Signal(rows_per_word), Signal(), Signal()
        m.d.comb += [image.eq(given.header.as_value() << 8 * ADDRESSES.itemsize), is_partial.eq(~kept_rows[-1])]

        def show_rows(rows, behind):
            """Keep what the next word of the body has, if the body has so many rows and `behind` of them are sent."""
            return [
                kept_rows.eq(Cat(reaches(rows, behind + k + 1) for k in range(rows_per_word))),
                ends_here.eq(~reaches(rows, behind + rows_per_word + 1)),
            ]

        def begin_body(has_rows):
            m.next = "BODY"
            with m.If(~has_rows):
                m.next = "END"

        with m.FSM() as fsm:
            has_begun = ~fsm.ongoing("IDLE")
            with m.State("IDLE"):
                m.d.comb += [
                    self.heads.ready.eq(advance),
                    is_chosen.eq(self.heads.valid),
                    chosen.data.eq(image[: self.bus_bits]),
                    chosen.first.eq(1),
                ]
                with m.If(self.heads.valid & advance):
                    m.d.sync += [
                        later_words.eq(image[self.bus_bits :]),
                        head_left.eq(head_words - 1),
                        rows_left.eq(given.rows),
                        *show_rows(given.rows, 0),
                        route.port.eq(given.port),
                        route.address.eq(given.address),
                        route.length.eq(FRAME_BYTES + END.itemsize + (given.rows << exact_log2(ROW_BYTES))),
                    ]
                    if head_words > 1:
                        m.next = "HEAD"
                    else:
                        begin_body(given.rows.any())
            if head_words > 1:
                with m.State("HEAD"):
                    m.d.comb += [is_chosen.eq(1), chosen.data.eq(later_words[: self.bus_bits])]
                    with m.If(advance):
                        m.d.sync += [later_words.eq(later_words >> self.bus_bits), head_left.eq(head_left - 1)]
                        with m.If(head_left == 1):
                            begin_body(kept_rows[0])
            with m.State("BODY"):
                m.d.comb += [
                    body.ready.eq(advance),
                    is_chosen.eq(body.valid),
                    chosen.spoil.eq(body.payload.spoil),
                    chosen.last.eq(is_partial),
                    chosen.end.eq(rows_left),
                ]
                for k in range(rows_per_word):
                    with m.If(kept_rows[k]):
                        m.d.comb += chosen.data.word_select(k, ROW_BITS).eq(body.payload.data.word_select(k, ROW_BITS))
                with m.If(body.valid & advance):
                    m.d.sync += [rows_left.eq(rows_left - rows_per_word), *show_rows(rows_left, rows_per_word)]
                    with m.If(ends_here):
                        m.next = "END"
                        with m.If(is_partial):
                            m.next = "IDLE"
            with m.State("END"):
                m.d.comb += [is_chosen.eq(1), chosen.last.eq(1)]
                with m.If(advance):
                    m.next = "IDLE"
        return has_begun

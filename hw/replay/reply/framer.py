"""Frames of the replay service: a header, rows, and the row that makes the checksum."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.interface.reply import ReplyRoute
from hw.stream.checksum import sum_halves
from hw.stream.packet import Packet, require_bus
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire import ADDRESSES, FRAME_BYTES
from iswitch.wire.replay import BODY_BYTES, END, REPLAY_HEADER, ROW_BYTES, STATUS

__all__ = ["FRAME_ROWS", "ROW_BITS", "FrameHead", "ReplyFramer", "queue_words"]

ROW_BITS = 8 * ROW_BYTES
BODY_ROWS = (BODY_BYTES + STATUS.itemsize) // ROW_BYTES
HEAD_ROWS = FRAME_BYTES // ROW_BYTES
FRAME_ROWS = HEAD_ROWS + BODY_ROWS + 1
"""Of the longest frame."""


def queue_words(bus_bits: int) -> int:
    """Return the depth of a queue for the longest frame, a power of two."""
    return 1 << (-(-FRAME_ROWS * ROW_BITS // bus_bits) - 1).bit_length()


class FrameHead(data.Struct):
    """Of a frame: where it goes, its header, and of how many rows its body is."""

    port: 4
    address: Address
    header: layout(REPLAY_HEADER)
    rows: range(BODY_ROWS + 1)


class ReplyFramer(wiring.Component):
    """A frame for each head, with the next `rows` as its body.

    The complement stands in the last row, so nothing is stored: the first word leaves when it is full, and then a row a
    cycle. 2 cycles between frames. Two rows may come ahead of their turn; `rows.ready` leads to registers only. `o` may
    stall; addresses are stamped at the port.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("ReplyFramer", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "heads": In(stream.Signature(FrameHead)),
                "rows": In(stream.Signature(ROW_BITS)),
                "o": Out(stream.Signature(Packet(bus_bits, meta=ReplyRoute))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asked, out = self.heads.payload, self.o.payload
        places = self.bus_bits // ROW_BITS
        image, left, total = (
            Signal(8 * FRAME_BYTES, reset_less=True),
            Signal(range(max(BODY_ROWS, HEAD_ROWS) + 1)),
            Signal(32),
        )
        body = Signal.like(left)
        row, valid, taken = Signal(ROW_BITS), Signal(), Signal()
        m.submodules.cut = cut = SkidBuffer(ROW_BITS)
        connect(m, flipped(self.rows), cut.i)

        # Rows fill a word; the last one may leave it unfinished.
        word, at, full, last = Signal(self.bus_bits, reset_less=True), Signal(range(places)), Signal(), Signal()
        count, port, address, length = (
            Signal.like(like, reset_less=True) for like in (out.count, out.meta.port, out.meta.address, out.meta.length)
        )
        m.d.comb += [
            taken.eq(valid & (~full | self.o.ready)),
            self.o.valid.eq(full),
            out.data.eq(word),
            out.last.eq(last),
            out.count.eq(count),
            out.meta.port.eq(port),
            out.meta.address.eq(address),
            out.meta.length.eq(length),
        ]
        with m.If(self.o.ready):
            m.d.sync += full.eq(0)

        folded, complement = Signal(17), Signal(16)
        ends = Signal()
        m.d.comb += [folded.eq(total[:16] + total[16:]), complement.eq(~(folded[:16] + folded[16]))]
        with m.If(taken):
            m.d.sync += [
                total.eq(total + sum_halves(row, 0, ROW_BYTES)),
                at.eq(0 if places == 1 else at + 1),
                last.eq(ends),
                count.eq((at + 1) << 3),
            ]
            with m.If(at == 0):
                m.d.sync += word.eq(row)
            with m.Else():
                m.d.sync += word.word_select(at, ROW_BITS).eq(row)
            with m.If(ends | (at == places - 1)):
                m.d.sync += [full.eq(1), at.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE") | full)
            with m.State("IDLE"):
                # What leaves bears this frame's addresses, so the one before must have left.
                m.d.comb += self.heads.ready.eq(~full)
                with m.If(self.heads.valid & ~full):
                    m.d.sync += [
                        image.eq(asked.header.as_value() << 8 * ADDRESSES.itemsize),
                        left.eq(HEAD_ROWS - 1),
                        body.eq(asked.rows),
                        total.eq(0),
                        port.eq(asked.port),
                        address.eq(asked.address),
                        length.eq(FRAME_BYTES + END.itemsize + (asked.rows << 3)),
                    ]
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [row.eq(image[:ROW_BITS]), valid.eq(1)]
                with m.If(taken):
                    m.d.sync += [image.eq(image >> ROW_BITS), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.d.sync += left.eq(body - 1)
                        m.next = "BODY"
                        with m.If(body == 0):
                            m.next = "SUM"
            with m.State("BODY"):
                m.d.comb += [row.eq(cut.o.payload), valid.eq(cut.o.valid), cut.o.ready.eq(~full | self.o.ready)]
                with m.If(taken):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 0):
                        m.next = "SUM"
            with m.State("SUM"):
                m.d.comb += [row.eq(complement << ROW_BITS - 16), valid.eq(1), ends.eq(1)]
                with m.If(taken):
                    m.next = "IDLE"
        return m

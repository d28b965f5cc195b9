"""Frames of the replay service: a header, rows, and the row that holds the checksum's complement."""

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
"""Rows of the longest frame."""


def queue_words(bus_bits: int) -> int:
    """Return the depth of a queue for the longest frame, a power of two."""
    return 1 << (-(-FRAME_ROWS * ROW_BITS // bus_bits) - 1).bit_length()


class FrameHead(data.Struct):
    """The recipient of a frame, its header, and the number of rows of its body."""

    port: 4
    address: Address
    header: layout(REPLAY_HEADER)
    rows: range(BODY_ROWS + 1)


class ReplyFramer(wiring.Component):
    """Makes a frame of each head and the next `rows`. The port fills in the frame's addresses.

    The complement stands in the last row, so no frame is stored. Latency: the first word leaves when it is full. One
    row in each cycle, and 2 cycles between frames. `o` may stall. Up to two rows are accepted before their head;
    `rows.ready` ends at registers. `spoil`, from a frame's first row to 1 cycle after its last row was accepted, makes
    its complement wrong by one bit, so that each receiver drops the frame for its UDP checksum.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("ReplyFramer", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "heads": In(stream.Signature(FrameHead)),
                "rows": In(stream.Signature(ROW_BITS)),
                "spoil": In(1),
                "o": Out(stream.Signature(Packet(bus_bits, meta=ReplyRoute))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        given, out = self.heads.payload, self.o.payload
        rows_per_word = self.bus_bits // ROW_BITS
        header_rows, left, total = (
            Signal(8 * FRAME_BYTES, reset_less=True),
            Signal(range(max(BODY_ROWS, HEAD_ROWS) + 1)),
            Signal(32),
        )
        body_rows = Signal.like(left)
        row, valid, row_taken = Signal(ROW_BITS), Signal(), Signal()
        m.submodules.skid = buffer = SkidBuffer(ROW_BITS)
        connect(m, flipped(self.rows), buffer.i)

        # Rows fill a word; the last word of a frame may be partly filled.
        word, row_index, full, last = (
            Signal(self.bus_bits, reset_less=True),
            Signal(range(rows_per_word)),
            Signal(),
            Signal(),
        )
        count, port, address, length = (
            Signal.like(like, reset_less=True) for like in (out.count, out.meta.port, out.meta.address, out.meta.length)
        )
        m.d.comb += [
            row_taken.eq(valid & (~full | self.o.ready)),
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

        folded, complement, spoiled = Signal(17), Signal(16), Signal()
        last_row = Signal()
        m.d.comb += [folded.eq(total[:16] + total[16:]), complement.eq(~(folded[:16] + folded[16]) ^ spoiled)]
        with m.If(self.spoil):
            m.d.sync += spoiled.eq(1)
        with m.If(row_taken):
            m.d.sync += [
                total.eq(total + sum_halves(row, 0, ROW_BYTES)),
                row_index.eq(0 if rows_per_word == 1 else row_index + 1),
                last.eq(last_row),
                count.eq((row_index + 1) << 3),
            ]
            with m.If(row_index == 0):
                m.d.sync += word.eq(row)
            with m.Else():
                m.d.sync += word.word_select(row_index, ROW_BITS).eq(row)
            with m.If(last_row | (row_index == rows_per_word - 1)):
                m.d.sync += [full.eq(1), row_index.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE") | full)
            with m.State("IDLE"):
                # The route stands beside all words, so the last word of the frame before must have left.
                m.d.comb += self.heads.ready.eq(~full)
                with m.If(self.heads.valid & ~full):
                    m.d.sync += [
                        header_rows.eq(given.header.as_value() << 8 * ADDRESSES.itemsize),
                        left.eq(HEAD_ROWS - 1),
                        body_rows.eq(given.rows),
                        total.eq(0),
                        spoiled.eq(0),
                        port.eq(given.port),
                        address.eq(given.address),
                        length.eq(FRAME_BYTES + END.itemsize + (given.rows << 3)),
                    ]
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [row.eq(header_rows[:ROW_BITS]), valid.eq(1)]
                with m.If(row_taken):
                    m.d.sync += [header_rows.eq(header_rows >> ROW_BITS), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.d.sync += left.eq(body_rows - 1)
                        m.next = "BODY"
                        with m.If(body_rows == 0):
                            m.next = "SUM"
            with m.State("BODY"):
                m.d.comb += [
                    row.eq(buffer.o.payload),
                    valid.eq(buffer.o.valid),
                    buffer.o.ready.eq(~full | self.o.ready),
                ]
                with m.If(row_taken):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 0):
                        m.next = "SUM"
            with m.State("SUM"):
                m.d.comb += [row.eq(complement << ROW_BITS - 16), valid.eq(1), last_row.eq(1)]
                with m.If(row_taken):
                    m.next = "IDLE"
        return m

"""Frames of the replay service as rows of 64 bits, out of a queue, so that the shared pipeline never stalls.

A request is executed while its rows are read, and most of it cannot be undone. So each frame is read twice: first to
find bit errors, then row by row.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.replay_request import RequestOrigin
from hw.stream.cut_through_queue import CutThroughQueue
from hw.stream.packet import Packet, word_of
from hw.stream.parity import with_parity
from hw.stream.skid_buffer import SkidBuffer
from hw.stream.stored_word import parity_of
from iswitch.wire.replay import QUEUED_REQUESTS, ROW_BYTES

__all__ = ["RequestReceiver", "RequestRow"]

ROW_BITS = 8 * ROW_BYTES


class RequestRow(data.Struct):
    """Eight bytes of a frame; `last` of its frame."""

    data: ROW_BITS
    last: 1


class RequestReceiver(wiring.Component):
    """Queues complete frames, and offers them row by row.

    The queue holds `depth` words, and at most `QUEUED_REQUESTS` frames. `words` come with `first` and, constant over a
    frame, `arrived`. A frame without room is dropped, and `stat_drop` is 1 for one cycle: the entry never stalls.
    `arrived_o` belongs to the frame in `rows`, from its first row to its last. A frame's length must be a multiple of a
    row. `busy`: from the cycle after a frame began until its last row was taken.

    If a word came with `error`, or if a word or the frame's `arrived` has a bit error when the queue is read for the
    first time, no row of the frame is offered, and `stat_corrupt` is 1 for one cycle: for its client, the request is
    lost. No bit error moves a frame's end (`StoredWord`).

    Latency: a frame's first row is offered 8 cycles after its last word was taken, or as many cycles after the last row
    of the frame before as it has words, and 4. One row in each cycle; `rows` may stall, and its `ready` ends at
    registers.
    """

    def __init__(self, *, bus_bits: int, depth: int):
        self.bus_bits = bus_bits
        origin = data.StructLayout({"arrived": RequestOrigin, "parity": 1})
        self.queue = CutThroughQueue(bus_bits=bus_bits, depth=depth, meta=origin, packets=QUEUED_REQUESTS)
        super().__init__(
            {
                "words": In(stream.Signature(Packet(bus_bits), always_ready=True)),
                "first": In(1),
                "arrived": In(RequestOrigin),
                "rows": Out(stream.Signature(RequestRow)),
                "arrived_o": Out(RequestOrigin),
                "stat_drop": Out(1),
                "stat_corrupt": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        m.submodules.skid = buffer = SkidBuffer(data.StructLayout({"row": RequestRow, "arrived": RequestOrigin}))
        rows = self.bus_bits // ROW_BITS
        is_checked, last_is_checked, was_damaged = Signal(), Signal(), Signal()
        entry, word, put = queue.i.payload, queue.o.payload, buffer.i.payload
        m.d.comb += [
            queue.i.valid.eq(self.words.valid),
            word_of(entry).eq(self.words.payload),
            # In the queue, `error` is the word's parity. A word with an error gets the wrong one.
            entry.error.eq(parity_of(self.words.payload) ^ self.words.payload.error),
            entry.first.eq(self.first),
            entry.meta.eq(with_parity(self.arrived)),
            queue.length.eq(self.arrived.length),
            self.stat_drop.eq(queue.stat_drop),
            self.busy.eq(queue.busy | self.rows.valid),
            put.arrived.eq(word.meta.arrived),
            self.arrived_o.eq(buffer.o.payload.arrived),
            buffer.i.valid.eq(queue.o.valid & is_checked),
            self.rows.valid.eq(buffer.o.valid),
            self.rows.payload.eq(buffer.o.payload.row),
            buffer.o.ready.eq(self.rows.ready),
        ]
        row_index = Signal(range(rows))
        ends_word = Signal()  # this row is the last of its word
        m.d.comb += [
            ends_word.eq(Array(word.count <= ROW_BYTES * (k + 1) for k in range(rows))[row_index]),
            put.row.last.eq(word.last & ends_word),
            put.row.data.eq(word.data.word_select(row_index, ROW_BITS)),
            queue.o.ready.eq(Mux(is_checked, buffer.i.ready & ends_word, ~word.last | last_is_checked)),
        ]
        # First the frame is read to check it, then, if it `is_checked`, for its rows. The parity of a word is known 1
        # cycle after the queue shows the word. So when the frame is checked, its last word stays for 2 cycles.
        wrong, damaged = Signal(), Signal()  # the word before; that word, or one before it in the frame
        shown = Signal()  # a word, for the first time
        m.d.comb += [
            shown.eq(queue.o.valid & ~is_checked & ~last_is_checked),
            damaged.eq(was_damaged | wrong),
            queue.repeat.eq(~is_checked & ~damaged),
            self.stat_corrupt.eq(~is_checked & last_is_checked & damaged),
        ]
        m.d.sync += [
            wrong.eq(shown & ((parity_of(word) != word.error) | word.meta.as_value().xor())),
            was_damaged.eq(damaged & ~is_checked & ~last_is_checked),
            last_is_checked.eq(shown & word.last),
        ]
        with m.If(queue.o.valid & queue.o.ready & word.last):
            m.d.sync += is_checked.eq(queue.repeat)
        with m.If(buffer.i.valid & buffer.i.ready):
            m.d.sync += row_index.eq(0 if rows == 1 else row_index + 1)
            with m.If(ends_word):
                m.d.sync += row_index.eq(0)
        return m

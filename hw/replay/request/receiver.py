"""Frames of the replay service as rows of 64 bits, out of a queue, so that the shared pipeline never stalls."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.replay_request import RequestOrigin
from hw.stream.cut_through_queue import CutThroughQueue
from hw.stream.packet import Packet, word_of
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire.replay import QUEUED_REQUESTS

__all__ = ["RequestReceiver", "RequestRow"]

ROW_BITS = 64


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

    Latency: a row is offered 4 cycles after its word was taken. One row in each cycle; `rows` may stall, and its
    `ready` ends at registers.
    """

    def __init__(self, *, bus_bits: int, depth: int):
        self.bus_bits = bus_bits
        self.queue = CutThroughQueue(bus_bits=bus_bits, depth=depth, meta=RequestOrigin, packets=QUEUED_REQUESTS)
        super().__init__(
            {
                "words": In(stream.Signature(Packet(bus_bits), always_ready=True)),
                "first": In(1),
                "arrived": In(RequestOrigin),
                "rows": Out(stream.Signature(RequestRow)),
                "arrived_o": Out(RequestOrigin),
                "stat_drop": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        m.submodules.skid = buffer = SkidBuffer(data.StructLayout({"row": RequestRow, "arrived": RequestOrigin}))
        rows = self.bus_bits // ROW_BITS
        entry, word, put = queue.i.payload, queue.o.payload, buffer.i.payload
        m.d.comb += [
            queue.i.valid.eq(self.words.valid),
            word_of(entry).eq(self.words.payload),
            entry.first.eq(self.first),
            entry.meta.eq(self.arrived),
            queue.length.eq(self.arrived.length),
            self.stat_drop.eq(queue.stat_drop),
            self.busy.eq(queue.busy | self.rows.valid),
            put.arrived.eq(word.meta),
            self.arrived_o.eq(buffer.o.payload.arrived),
            buffer.i.valid.eq(queue.o.valid),
            self.rows.valid.eq(buffer.o.valid),
            self.rows.payload.eq(buffer.o.payload.row),
            buffer.o.ready.eq(self.rows.ready),
        ]
        row_index = Signal(range(rows))
        ends_word = Signal()  # this row is the last of its word
        m.d.comb += [
            ends_word.eq(word.count <= (row_index + 1) << 3),
            put.row.last.eq(word.last & ends_word),
            put.row.data.eq(word.data.word_select(row_index, ROW_BITS)),
            queue.o.ready.eq(buffer.i.ready & ends_word),
        ]
        with m.If(buffer.i.valid & buffer.i.ready):
            m.d.sync += row_index.eq(0 if rows == 1 else row_index + 1)
            with m.If(ends_word):
                m.d.sync += row_index.eq(0)
        return m

"""Requests of the replay service as rows of 64 bits, out of a memory that keeps the lane from waiting."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.replay_request import Arrived
from hw.stream.cut_through_queue import CutThroughQueue
from hw.stream.packet import Packet, word_of
from hw.stream.skid_buffer import SkidBuffer

__all__ = ["RequestReceiver", "RequestRow"]

ROW_BITS = 64


class RequestRow(data.Struct):
    """Eight bytes of a frame."""

    data: ROW_BITS
    last: 1


class RequestReceiver(wiring.Component):
    """Takes whole frames or none, and shows them row by row.

    Words come with `first`, and with `arrived`, which is constant over a frame. A frame for which there is no room is
    dropped whole, and `stat_drop` pulses: the entry never stalls. `arrived_o` is that of the frame in `rows`, from its
    first row to its last. Frames are whole rows. One row a cycle, the first 4 cycles after its word; `rows.ready` leads
    to registers only. `busy`: from the cycle after a frame began until its last row was taken.
    """

    def __init__(self, *, bus_bits: int, depth: int):
        self.bus_bits = bus_bits
        self.queue = CutThroughQueue(bus_bits=bus_bits, depth=depth, meta=Arrived, packets=64)
        super().__init__(
            {
                "words": In(stream.Signature(Packet(bus_bits), always_ready=True)),
                "first": In(1),
                "arrived": In(Arrived),
                "rows": Out(stream.Signature(RequestRow)),
                "arrived_o": Out(Arrived),
                "stat_drop": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        m.submodules.cut = cut = SkidBuffer(data.StructLayout({"row": RequestRow, "arrived": Arrived}))
        rows = self.bus_bits // ROW_BITS
        entry, word, put = queue.i.payload, queue.o.payload, cut.i.payload
        m.d.comb += [
            queue.i.valid.eq(self.words.valid),
            word_of(entry).eq(self.words.payload),
            entry.first.eq(self.first),
            entry.meta.eq(self.arrived),
            queue.length.eq(self.arrived.length),
            self.stat_drop.eq(queue.stat_drop),
            self.busy.eq(queue.busy | self.rows.valid),
            put.arrived.eq(word.meta),
            self.arrived_o.eq(cut.o.payload.arrived),
            cut.i.valid.eq(queue.o.valid),
            self.rows.valid.eq(cut.o.valid),
            self.rows.payload.eq(cut.o.payload.row),
            cut.o.ready.eq(self.rows.ready),
        ]
        at = Signal(range(rows))
        ends = Signal()  # the word, with this row
        m.d.comb += [
            ends.eq(word.count <= (at + 1) << 3),
            put.row.last.eq(word.last & ends),
            put.row.data.eq(word.data.word_select(at, ROW_BITS)),
            queue.o.ready.eq(cut.i.ready & ends),
        ]
        with m.If(cut.i.valid & cut.i.ready):
            m.d.sync += at.eq(0 if rows == 1 else at + 1)
            with m.If(ends):
                m.d.sync += at.eq(0)
        return m

"""A queue that shows a packet when it is complete."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.fifo import Fifo
from hw.stream.packet import Packet, first_of
from hw.stream.stored_word import StoredWord, majority, stored_word

__all__ = ["StoreAndForward"]


class StoreAndForward(wiring.Component):
    """Shows a packet when its last word has entered, and from then on a word in each cycle in which `o` is ready.

    So a slow producer does not stall the consumer in the middle of a packet. A packet has at least two
    words. It appears 1 cycle after its last word was taken; one word per cycle on each side. `i` stalls when the
    memory is full. A packet of more than `depth` words would never appear. No bit error moves a packet's end
    (`StoredWord`).

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    depth : int
        Words that the memory holds, at least those of the longest packet.
    meta : ShapeLike
        Record that goes with each packet.
    packets : int
        Packets that the memory holds.
    """

    def __init__(self, *, bus_bits: int, depth: int, meta, packets: int = 16):
        if depth < 2:
            raise ValueError(f"StoreAndForward depth must be at least 2, not {depth!r}")
        self.bus_bits, self.depth, self.meta, self.packets = bus_bits, depth, meta, packets
        signature = stream.Signature(Packet(bus_bits, meta=meta))
        super().__init__({"i": In(signature), "o": Out(signature), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Fifo(StoredWord(self.bus_bits), depth=self.depth)
        m.submodules.metas = metas = Fifo(self.meta, depth=self.packets)
        complete, enters, leaves = Signal(range(self.packets + 1)), Signal(), Signal()
        first = first_of(m, self.i)
        m.d.comb += [
            self.i.ready.eq(words.i.ready & (~first | metas.i.ready)),
            words.i.valid.eq(self.i.valid & self.i.ready),
            words.i.payload.eq(stored_word(self.i.payload, self.i.payload.error)),
            metas.i.valid.eq(words.i.valid & first),
            metas.i.payload.eq(self.i.payload.meta),
            enters.eq(words.i.valid & self.i.payload.last),
            self.o.valid.eq(words.o.valid & (complete != 0)),
            self.o.payload.data.eq(words.o.payload.data),
            self.o.payload.count.eq(words.o.payload.count),
            self.o.payload.last.eq(majority(words.o.payload.last)),
            self.o.payload.error.eq(words.o.payload.mark),
            self.o.payload.meta.eq(metas.o.payload),
            words.o.ready.eq(self.o.valid & self.o.ready),
            leaves.eq(words.o.ready & self.o.payload.last),
            metas.o.ready.eq(leaves),
            self.busy.eq(words.level != 0),
        ]
        m.d.sync += complete.eq(complete + enters - leaves)
        return m

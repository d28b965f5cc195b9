"""Frames from a stream that cannot stall into one that can: truncated or lost frames are reported."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet, require_bus

__all__ = ["OWED_MAX", "Overflow"]

OWED_MAX = 255


class Overflow(wiring.Component):
    """From a stream that cannot stall to one that can. One word a cycle, 1 cycle later.

    A frame with a word that finds no room ends there, with `error` and `count` 0. A frame that begins before that end
    was sent is lost, and reported by a single such word. So each input frame gives one `last`, in order, and each
    incomplete one an `error`, which `count` tells from a bad FCS. The report takes two cycles without a word; a line's
    gap and preamble give enough of them. OWED_MAX ends are kept.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("Overflow", bus_bits)
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits), always_ready=True)),
                "o": Out(stream.Signature(Packet(bus_bits))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        first, losing, ended, owed = Signal(init=1), Signal(), Signal(), Signal(range(OWED_MAX + 1))
        room, owes, shut, loses = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            # While an end is owed, no frame begins, so no word comes between a frame and its end.
            owes.eq(owed != 0),
            shut.eq(losing | first & (ended | owes)),
            room.eq(~self.o.valid | self.o.ready),
            loses.eq(shut | ~room),
        ]
        # `ready` arrives late in a cycle, so little logic depends on it: a frame that ends without room is counted in
        # the next cycle.
        with m.If(room):
            m.d.sync += [self.o.valid.eq(self.i.valid & ~shut | owes), self.o.payload.eq(self.i.payload)]
            with m.If(owes):
                m.d.sync += [self.o.payload.count.eq(0), self.o.payload.last.eq(1), self.o.payload.error.eq(1)]
        with m.If(self.i.valid):
            m.d.sync += [first.eq(self.i.payload.last), losing.eq(loses & ~self.i.payload.last)]
        m.d.sync += ended.eq(self.i.valid & self.i.payload.last & loses)
        with m.If(Mux(room & owes, ~ended, ended & (owed != OWED_MAX))):
            m.d.sync += owed.eq(owed + Mux(ended, 1, OWED_MAX))  # plus one, or minus one modulo OWED_MAX + 1
        return m

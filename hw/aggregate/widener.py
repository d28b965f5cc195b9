"""Turns payloads of two-byte elements into payloads of four-byte ones, in front of the sequencer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.elements import ElementForm
from hw.numeric.formats import ELEMENT_BITS, HALF_BITS
from hw.numeric.half import widened
from hw.stream.packet import Packet, require_bus, word_of

__all__ = ["Widener"]


class Widener(wiring.Component):
    """Makes two words of each word whose elements are `half`: each element has four bytes then (`widened`). Other
    payloads pass as they are.

    A `half` payload is a multiple of four bytes. Of its last word comes only one word if that holds all elements.
    `error`, which says that a word has a bit error, is that of both.

    A word of four-byte elements passes in the same cycle. The first word of a `half` payload appears 1 cycle after it
    was taken, one word per cycle on the wide side: so such a payload enters at half a bus word per cycle. `ready`
    depends on `o.ready` and on the form of the payload.

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("Widener", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits, meta=ElementForm))),
                "o": Out(stream.Signature(Packet(bus_bits))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        half_bits, half_bytes = self.bus_bits // 2, self.bus_bits // 16
        held = Signal(Packet(self.bus_bits, meta=ElementForm), reset_less=True)
        upper, ends, free = Signal(), Signal(), Signal()
        m.d.comb += [
            ends.eq(upper | (held.count <= half_bytes)),
            free.eq(~self.busy | (self.o.ready & ends)),
            self.i.ready.eq(Mux(self.i.payload.meta.half, free, ~self.busy & self.o.ready)),
            self.o.valid.eq(self.busy | (self.i.valid & ~self.i.payload.meta.half)),
            self.o.payload.eq(word_of(self.i.payload)),
        ]
        with m.If(free):
            m.d.sync += [held.eq(self.i.payload), self.busy.eq(self.i.valid & self.i.payload.meta.half), upper.eq(0)]
        with m.Elif(self.o.ready):
            m.d.sync += upper.eq(1)

        chosen = Signal(half_bits)
        m.d.comb += chosen.eq(Mux(upper, held.data[half_bits:], held.data[:half_bits]))
        elements = [
            widened(
                m, f"element_{k}", chosen.word_select(k, HALF_BITS), binary16=held.meta.binary16, as_is=held.meta.as_is
            )
            for k in range(self.bus_bits // ELEMENT_BITS)
        ]
        with m.If(self.busy):
            m.d.comb += [
                self.o.payload.data.eq(Cat(elements)),
                self.o.payload.count.eq((held.count - Mux(upper, half_bytes, 0)) << 1),
                self.o.payload.last.eq(held.last & ends),
                self.o.payload.error.eq(held.error),
            ]
            with m.If(~upper & ~ends):
                m.d.comb += self.o.payload.count.eq(self.bus_bits // 8)
        return m

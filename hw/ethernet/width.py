"""Width conversion between words of 64 bits and words of the bus."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet, require_bus

__all__ = ["Narrow", "Widen"]

BYTES = 8


class Widen(wiring.Component):
    """Joins words of 64 bits to bus words. A bus word comes out 1 cycle after its last part. Neither side can stall."""

    def __init__(self, *, bus_bits: int):
        require_bus("Widen", bus_bits)
        self.pieces = bus_bits // (8 * BYTES)
        super().__init__(
            {
                "i": In(stream.Signature(Packet(8 * BYTES), always_ready=True)),
                "o": Out(stream.Signature(Packet(bus_bits), always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index, word, i = Signal(range(self.pieces)), self.o.payload, self.i.payload
        is_whole = i.last | (index == self.pieces - 1)
        m.d.sync += self.o.valid.eq(self.i.valid & is_whole)
        with m.If(self.i.valid):
            m.d.sync += [
                index.eq(Mux(is_whole, 0, index + 1)),
                word.last.eq(i.last),
                word.error.eq(i.error),
                word.count.eq(BYTES * index + i.count),
            ]
            for piece in range(self.pieces):
                with m.If(index == piece):
                    m.d.sync += word.data.word_select(piece, 8 * BYTES).eq(i.data)
        return m


class Narrow(wiring.Component):
    """Splits bus words into words of 64 bits. The first part comes 1 cycle after its word, then one a cycle, also from
    one word to the next."""

    def __init__(self, *, bus_bits: int):
        require_bus("Narrow", bus_bits)
        self.bus_bits = bus_bits
        super().__init__({"i": In(stream.Signature(Packet(bus_bits))), "o": Out(stream.Signature(Packet(8 * BYTES)))})

    def elaborate(self, platform):
        m = Module()
        word, filled, is_last_piece = Signal(Packet(self.bus_bits), reset_less=True), Signal(), Signal()
        m.d.comb += [
            is_last_piece.eq(word.count <= BYTES),
            self.i.ready.eq(~filled | self.o.ready & is_last_piece),
            self.o.valid.eq(filled),
            self.o.payload.data.eq(word.data[: 8 * BYTES]),
            self.o.payload.count.eq(Mux(is_last_piece, word.count, BYTES)),
            self.o.payload.last.eq(word.last & is_last_piece),
            self.o.payload.error.eq(word.error),
        ]
        with m.If(self.i.ready):
            m.d.sync += [filled.eq(self.i.valid), word.eq(self.i.payload)]
        with m.Elif(self.o.ready):
            m.d.sync += [word.data.eq(word.data >> 8 * BYTES), word.count.eq(word.count - BYTES)]
        return m

"""Frames across a clock domain boundary."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet, require_bus

__all__ = ["Crossing"]


class Crossing(wiring.Component):
    """A FIFO of `depth` words from clock domain `write` (`i`) to `read` (`o`). One word a cycle on both sides; both may
    stall.

    With `whole` it stores and forwards: a frame appears when its last word is stored, and then without a pause. A
    longer frame than the memory would never appear, and the FIFO holds at most half as many frames as words. A word is
    offered from the second edge of `read` after the edge of `write` that stored it (the third, if a synchroniser
    hesitates); with `whole` the first word so after the last word's edge.

    Either side may be reset alone, for at least 4 cycles of the slower clock. A reset of `write` loses the content of
    the memory, and a frame that has begun to leave ends with an error. A reset of `read` skips the rest of such a
    frame. So no incomplete frame ends without an error. Where both sides are always reset together and LUTs are scarce,
    `hw.board.ecp5.crossing` is smaller.
    """

    def __init__(self, *, bus_bits: int, depth: int, whole: bool = False):
        require_bus("Crossing", bus_bits)
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"Crossing depth must be a power of two of at least 4, not {depth!r}")
        self.bus_bits, self.depth, self.whole = bus_bits, depth, whole
        super().__init__({"i": In(stream.Signature(Packet(bus_bits))), "o": Out(stream.Signature(Packet(bus_bits)))})

    def elaborate(self, platform):
        m = Module()
        shape = Packet(self.bus_bits)
        m.submodules.words = words = AsyncFIFO(width=shape.size, depth=self.depth, r_domain="read", w_domain="write")
        m.d.comb += [
            self.i.ready.eq(words.w_rdy),
            words.w_en.eq(self.i.valid & self.i.ready),
            words.w_data.eq(self.i.payload),
        ]
        may_begin = Signal()
        if self.whole:
            # One entry for each complete frame, written a cycle after its last word: a reader that sees the entry finds
            # the word.
            m.submodules.frames = frames = AsyncFIFO(width=1, depth=self.depth // 2, r_domain="read", w_domain="write")
            ended = Signal()
            m.d.write += ended.eq(words.w_en & self.i.payload.last)
            m.d.comb += [frames.w_en.eq(ended), frames.w_data.eq(1), may_begin.eq(frames.r_rdy)]
            with m.If(ended | ~frames.w_rdy):
                m.d.comb += [self.i.ready.eq(0)]
        else:
            m.d.comb += may_begin.eq(1)

        # `inside`: the memory's output is inside a frame; survives a reset, as the memory does. `begun`: the reader
        # has seen a first word.
        word, inside, begun, cut = words.r_data, Signal(reset_less=True), Signal(), Signal()
        skips, takes = Signal(), Signal()
        payload = Signal(shape)
        m.d.comb += [
            payload.eq(word),
            skips.eq(inside & ~begun),
            self.o.valid.eq(cut | words.r_rdy & ~skips & (inside | may_begin)),
            self.o.payload.eq(payload),
            takes.eq(words.r_rdy & ~cut & (skips | self.o.ready & (inside | may_begin))),
            words.r_en.eq(takes),
        ]
        if self.whole:
            m.d.comb += frames.r_en.eq(takes & ~inside)
        with m.If(takes):
            m.d.read += [inside.eq(~payload.last), begun.eq(~payload.last & ~skips)]
        with m.If(cut):
            m.d.comb += [self.o.payload.last.eq(1), self.o.payload.error.eq(1), self.o.payload.count.eq(1)]
            with m.If(self.o.ready):
                m.d.read += [cut.eq(0), begun.eq(0)]
        with m.Elif(words.r_rst):
            m.d.read += [inside.eq(0), cut.eq(begun)]
        return m

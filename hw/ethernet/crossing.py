"""Frames across a clock domain boundary."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet, require_bus

__all__ = ["FrameCrossing"]


class FrameCrossing(wiring.Component):
    """A FIFO for frames from clock domain `write` (`i`) to `read` (`o`), whose sides may be reset one at a time.

    One word per cycle on both sides; both may stall. A word is offered from the second edge of `read` after the edge of
    `write` that stored it (the third, if a synchroniser hesitates). With `store_and_forward` a frame's first word is
    offered as late after the edge that stored its last word, and its other words follow without a pause. A frame longer
    than the memory would never appear, and the FIFO holds at most half as many frames as words.

    Either side may be reset alone, for at least 4 cycles of the slower clock. A reset of `write` loses the content of
    the memory, and a frame that has begun to leave ends with an error. A reset of `read` skips the rest of such a
    frame. So no incomplete frame ends without an error. Where both sides are always reset together and LUTs are scarce,
    `hw.board.ecp5.crossing.ClockCrossing` is smaller.

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    depth : int
        Words of the memory, a power of two of at least 4.
    store_and_forward : bool
        Whether a frame appears only when it is complete; otherwise each word appears by itself.
    """

    def __init__(self, *, bus_bits: int, depth: int, store_and_forward: bool = False):
        require_bus("FrameCrossing", bus_bits)
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"FrameCrossing depth must be a power of two of at least 4, not {depth!r}")
        self.bus_bits, self.depth, self.store_and_forward = bus_bits, depth, store_and_forward
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
        if self.store_and_forward:
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
        if self.store_and_forward:
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

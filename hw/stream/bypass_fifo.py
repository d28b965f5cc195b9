"""A FIFO that an item passes at once if nothing is before it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.fifo import Fifo

__all__ = ["BypassFifo"]


class BypassFifo(wiring.Component):
    """A memory of `depth` items of any shape, in order, which an item passes if nothing is before it.

    An item that meets an empty FIFO appears in the same cycle (combinational). If it is not taken then, it waits in a
    register, and the items behind it in the memory, each for at least 2 cycles. One item per cycle on each side, also
    where the path changes: items that enter in consecutive cycles can leave in consecutive cycles from any moment on.
    `i` stalls when the memory is full.

    Parameters
    ----------
    shape : ShapeLike
        Shape of the items.
    depth : int
        Number of items that the memory holds, at least 2.

    Members
    -------
    i, o : stream
        Items that enter and leave.
    level : range(depth + 2)
        Number of items in the register and the memory.
    waits : 1
        `level` is not 0.
    """

    def __init__(self, shape, *, depth: int):
        if depth < 2:
            raise ValueError(f"BypassFifo depth must be at least 2, not {depth!r}")
        self.shape, self.depth = shape, depth
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 2)),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Fifo(self.shape, depth=self.depth)
        # `empty`: so is the memory. A register, because a critical path begins at it.
        oldest, held, empty, free = Signal(self.shape, reset_less=True), Signal(), Signal(init=1), Signal()
        with m.If(memory.i.valid & memory.i.ready):
            m.d.sync += empty.eq(0)
        with m.Elif(memory.o.valid & memory.o.ready):
            m.d.sync += empty.eq(memory.level == 1)
        m.d.comb += [
            free.eq(~held | self.o.ready),
            self.o.valid.eq(held | memory.o.valid | (empty & self.i.valid)),
            self.o.payload.eq(Mux(held, oldest, Mux(empty, self.i.payload, memory.o.payload))),
            # An item that meets others goes behind them.
            memory.i.payload.eq(self.i.payload),
            memory.i.valid.eq(self.i.valid & ~(empty & free)),
            self.i.ready.eq(memory.i.ready),
            memory.o.ready.eq(~held & self.o.ready),
            self.level.eq(memory.level + held),
            self.waits.eq(held | ~empty),
        ]
        with m.If(held & self.o.ready):
            m.d.sync += held.eq(empty & self.i.valid)
        with m.Elif(~held & empty):
            m.d.sync += held.eq(self.i.valid & ~self.o.ready)
        with m.If(free):
            m.d.sync += oldest.eq(self.i.payload)
        return m

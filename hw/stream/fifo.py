"""A FIFO between two streams."""

from amaranth.hdl import Module, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Fifo"]


class Fifo(wiring.Component):
    """A memory of `depth` items of any shape, in order.

    One item per cycle on each side. `i` stalls when the memory is full. An item appears 1 cycle after it was taken, or
    2 cycles if `buffered`.

    Parameters
    ----------
    shape : ShapeLike
        Shape of the items.
    depth : int
        Number of items that the memory holds, at least 2.
    buffered : bool
        Whether the output is a register, so that a block RAM can hold the items. Otherwise the memory is read in the
        same cycle (LUT RAM).

    Members
    -------
    i, o : stream
        Items that enter and leave.
    level : range(depth + 1)
        Number of items inside, with the one that `o` shows.
    """

    def __init__(self, shape, *, depth: int, buffered: bool = True):
        if depth < 2:
            raise ValueError(f"Fifo depth must be at least 2, not {depth!r}")
        self.depth, self.buffered = depth, buffered
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "level": Out(range(depth + 1))}
        )

    def elaborate(self, platform):
        m = Module()
        kind = fifo.SyncFIFOBuffered if self.buffered else fifo.SyncFIFO
        m.submodules.fifo = memory = kind(width=len(Value.cast(self.i.payload)), depth=self.depth)
        m.d.comb += [
            memory.w_data.eq(self.i.payload),
            memory.w_en.eq(self.i.valid),
            self.i.ready.eq(memory.w_rdy),
            self.o.payload.eq(memory.r_data),
            self.o.valid.eq(memory.r_rdy),
            memory.r_en.eq(self.o.ready),
            self.level.eq(memory.level),
        ]
        return m

"""A FIFO between two streams."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

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
        # The output register of a buffered FIFO holds one of the items.
        places = self.depth - self.buffered
        bits = ceil_log2(places)
        m.submodules.memory = memory = Memory(shape=self.i.payload.shape(), depth=1 << bits, init=[])
        writer, reader = memory.write_port(), memory.read_port(domain="sync" if self.buffered else "comb")
        write, read, stored = Signal(bits), Signal(bits), Signal(range(places + 1))
        room, filled = Signal(init=1), Signal()
        enters, leaves = Signal(), Signal()
        m.d.comb += [
            enters.eq(self.i.valid & room),
            writer.addr.eq(write),
            writer.data.eq(self.i.payload),
            writer.en.eq(enters),
            reader.addr.eq(read),
            self.i.ready.eq(room),
            self.o.payload.eq(reader.data),
        ]
        if self.buffered:
            shown = Signal()
            m.d.comb += [
                leaves.eq(filled & (~shown | self.o.ready)),
                reader.en.eq(leaves),
                self.o.valid.eq(shown),
                self.level.eq(stored + shown),
            ]
            with m.If(~shown | self.o.ready):
                m.d.sync += shown.eq(filled)
        else:
            m.d.comb += [leaves.eq(filled & self.o.ready), self.o.valid.eq(filled), self.level.eq(stored)]
        with m.If(enters):
            m.d.sync += write.eq(write + 1)
        with m.If(leaves):
            m.d.sync += read.eq(read + 1)
        # Long paths end and begin here: `enters` and `leaves` are late, so each bit of the counter is one LUT behind
        # them, and `room` and `filled` are registers.
        with m.If(enters != leaves):
            m.d.sync += [
                stored.eq(stored ^ Cat(Mux(enters, stored[:k].all(), ~stored[:k].any()) for k in range(len(stored)))),
                room.eq(leaves | (stored != places - 1)),
                filled.eq(enters | (stored != 1)),
            ]
        return m

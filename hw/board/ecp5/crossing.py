"""Words of frames across a clock domain boundary, on an ECP5 board."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN

__all__ = ["ClockCrossing"]


class ClockCrossing(wiring.Component):
    """A FIFO between the clock domains `i_domain` and `o_domain`, which may be the same. Its sides are reset together.

    A word appears at most 3 cycles of the writer and then 4 of the reader after it was written; one word per cycle of
    the slower clock. `i` stalls when the memory is full or was full a moment ago. With `store_and_forward` a
    frame appears when its last word has been written, and from then on the FIFO never runs dry while the reader takes
    at most one word in each cycle of the writer. A frame longer than `depth` words would never appear.

    Both sides must be reset together, never one alone; a side whose clock may stop during the reset is reset without
    its clock (`hw.board.ecp5.clocks.wire_domain`). Two pointers in Gray code cross, each moved by at most one in a
    cycle and registered before it crosses, so that at most one bit is in flight; two registers of the other side take
    it up.

    `hw.ethernet.crossing.FrameCrossing` allows a reset of one side alone, which a serial line needs. An ECP5 board has
    one reset for all sides, and few LUTs: for frames of up to 512 words of 70 bits this FIFO takes 89 LUTs and that one
    161; for 16 words they take 154 and 159.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word, with a field `last` if `store_and_forward`.
    depth : int
        Words of the memory, a power of two of at least 4.
    i_domain, o_domain : str
        Clock domains of the writer (`i`) and of the reader (`o`).
    store_and_forward : bool
        Whether a frame appears only when it is complete; otherwise each word appears by itself.
    """

    def __init__(self, shape, *, depth: int, i_domain: str, o_domain: str, store_and_forward: bool):
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"ClockCrossing depth must be a power of two of at least 4, not {depth!r}")
        self.depth, self.i_domain, self.o_domain, self.store_and_forward = depth, i_domain, o_domain, store_and_forward
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        # Two clocks have no common cycle, so a read and a write of one word never coincide.
        attributes = NEVER_READ_BEFORE_WRITTEN | (NEVER_READ_WHILE_WRITTEN if self.i_domain == self.o_domain else {})
        m.submodules.memory = memory = Memory(shape=self.i.payload.shape(), depth=self.depth, init=[], attrs=attributes)
        put, get = memory.write_port(domain=self.i_domain), memory.read_port(domain=self.o_domain)
        i, o = m.d[self.i_domain], m.d[self.o_domain]
        bits = self.depth.bit_length()
        gray = lambda count: count ^ count >> 1
        write, shown, shown_gray, shown_there = (
            Signal(bits, name=name) for name in ("write", "shown", "shown_gray", "shown_there")
        )
        read, read_gray, read_there = (Signal(bits, name=name) for name in ("read", "read_gray", "read_there"))
        m.submodules += [
            FFSynchronizer(shown_gray, shown_there, o_domain=self.o_domain),
            FFSynchronizer(read_gray, read_there, o_domain=self.i_domain),
        ]

        # Full: the reader is one lap behind, so the two upper bits of the Gray code differ. From a register, because
        # the producer's request is late itself.
        opens = Signal(init=1)
        i += opens.eq(Mux(put.en, gray((write + 1)[:bits]), gray(write)) != read_there ^ (0b11 << bits - 2))
        m.d.comb += [
            self.i.ready.eq(opens),
            put.addr.eq(write[:-1]),
            put.data.eq(self.i.payload),
            put.en.eq(self.i.valid & self.i.ready),
        ]
        with m.If(put.en):
            i += write.eq(write + 1)
        end = Signal(bits)
        if self.store_and_forward:
            with m.If(put.en & self.i.payload.last):
                i += end.eq(write + 1)
        else:
            m.d.comb += end.eq(write)
        with m.If(shown != end):
            i += shown.eq(shown + 1)
        i += shown_gray.eq(gray(shown))

        filled, moves = Signal(), Signal()
        m.d.comb += [
            moves.eq(~filled | self.o.ready),
            get.addr.eq(read[:-1]),
            get.en.eq(moves & (gray(read) != shown_there)),
            self.o.payload.eq(get.data),
            self.o.valid.eq(filled),
        ]
        with m.If(moves):
            o += filled.eq(get.en)
        with m.If(get.en):
            o += read.eq(read + 1)
        o += read_gray.eq(gray(read))
        return m

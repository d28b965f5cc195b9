"""A frame memory at a port's exit: takes whole frames or none, shows a frame as soon as it begins, can show it again."""

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.frame import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN, Word, require_bus

__all__ = ["FrameStore"]


class FrameStore(wiring.Component):
    """Ring of words with one `note` for each frame.

    Entry: `put` words with `first` and, constant over the frame, `put_words` (its length in words) and `put_note`. If memory or notes do not
    suffice at `first`, the whole frame is dropped and `stat_drop` pulses: the entry never stalls. Exit: `note` of the oldest frame,
    its words in `o`; with its last word the reader says `again` (show the same frame once more, 2 cycles later) or not
    (forget it). Cut-through: a word can be read 2 cycles after it was put, one word per cycle.
    """

    def __init__(self, *, bus_bits: int, depth: int, note, notes: int = 16):
        require_bus("FrameStore", bus_bits)
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"FrameStore depth must be a power of two above 1, not {depth!r}")
        self.bus_bits, self.depth, self.notes = bus_bits, depth, notes
        self.note_bits = Shape.cast(note).width
        super().__init__({
            "put": In(stream.Signature(Word(bus_bits), always_ready=True)), "first": In(1), "put_words": In(16),
            "put_note": In(note), "o": Out(stream.Signature(Word(bus_bits))),
            "note": Out(note), "noted": Out(1), "again": In(1), "stat_drop": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Word(self.bus_bits), depth=self.depth, init=[],
                                              attrs=NEVER_READ_BEFORE_WRITTEN | NEVER_READ_WHILE_WRITTEN)
        put, get = memory.write_port(), memory.read_port()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=self.note_bits, depth=self.notes)
        bits = self.depth.bit_length()
        write, start, read, taken = (Signal(bits, name=name) for name in ("write", "start", "read", "taken"))
        dropping = Signal()

        free = Signal(bits)
        fits, stores = Signal(), Signal()
        m.d.comb += [
            free.eq(self.depth - (write - start)[:bits]), fits.eq((self.put_words <= free) & fifo.w_rdy),
            stores.eq(self.put.valid & (self.first & fits | ~self.first & ~dropping)),
            self.stat_drop.eq(self.put.valid & self.first & ~fits),
            put.addr.eq(write[:-1]), put.data.eq(self.put.payload), put.en.eq(stores),
            fifo.w_data.eq(self.put_note), fifo.w_en.eq(stores & self.first),
        ]
        with m.If(self.put.valid & self.first):
            m.d.sync += dropping.eq(~fits)
        with m.If(stores):
            m.d.sync += write.eq(write + 1)

        filled, moves = Signal(), Signal()
        m.d.comb += [
            get.addr.eq(read[:-1]), moves.eq(~filled | self.o.ready), get.en.eq(moves & (read != write)), self.o.payload.eq(get.data),
            self.o.valid.eq(filled & fifo.r_rdy), self.note.eq(fifo.r_data), self.noted.eq(fifo.r_rdy),
            self.busy.eq(write != start),
        ]
        with m.If(moves):
            m.d.sync += filled.eq(get.en)
        with m.If(get.en):
            m.d.sync += read.eq(read + 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += taken.eq(taken + 1)
            with m.If(self.o.payload.last):
                with m.If(self.again):
                    # What was read ahead belongs to the next frame: forget it and go back.
                    m.d.sync += [taken.eq(start), read.eq(start), filled.eq(0)]
                with m.Else():
                    m.d.comb += fifo.r_en.eq(1)
                    m.d.sync += start.eq(taken + 1)
        return m

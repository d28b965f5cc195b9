"""A frame memory at a port's exit: takes whole frames or none, shows a frame as soon as it begins, can show it
again."""

from amaranth.hdl import Cat, Const, Module, Shape, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.stream.packet import LENGTH_BITS, Packet, require_bus

__all__ = ["FrameStore"]


class FrameStore(wiring.Component):
    """Ring of words, with one `note` for each frame if there is a shape for it.

    Entry: `put` words with `first` and, constant over the frame, `put_bytes` (its length) and `put_note`. If memory or
    notes do not suffice at `first`, the whole frame is dropped and `stat_drop` pulses: the entry never stalls. Exit:
    `note` of the oldest frame, its words in `o`; with its last word the reader says `again` (show the same frame once
    more, 3 cycles later) or not (forget it; there is room for a word in its place 2 cycles later). Cut-through: a word
    can be read 3 cycles after it was put, one word per cycle; `o` comes out of registers.
    """

    def __init__(self, *, bus_bits: int, depth: int, note=None, notes: int = 16):
        require_bus("FrameStore", bus_bits)
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"FrameStore depth must be a power of two above 1, not {depth!r}")
        self.bus_bits, self.depth, self.notes = bus_bits, depth, notes
        self.note_bits = None if note is None else Shape.cast(note).width
        super().__init__(
            {
                "put": In(stream.Signature(Packet(bus_bits), always_ready=True)),
                "first": In(1),
                "put_bytes": In(LENGTH_BITS),
                "o": Out(stream.Signature(Packet(bus_bits))),
                "again": In(1),
                "stat_drop": Out(1),
                "busy": Out(1),
                **({"put_note": In(note), "note": Out(note), "noted": Out(1)} if note is not None else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=Packet(self.bus_bits),
            depth=self.depth,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN | NEVER_READ_WHILE_WRITTEN,
        )
        put, get = memory.write_port(), memory.read_port()
        bits = self.depth.bit_length()
        write, start, read = (Signal(bits, name=name) for name in ("write", "start", "read"))
        dropping, noted, notable = Signal(), Signal(init=1), Signal(init=1)

        # `room` is late by a cycle, in which a word may have come: it is taken off where the sum is short.
        room, late, spare = Signal(bits, init=self.depth), Signal(), Signal(signed(max(LENGTH_BITS, bits) + 2))
        fits, stores, leaves, shift = Signal(), Signal(), Signal(), exact_log2(self.bus_bits // 8)
        m.d.comb += [
            spare.eq((Cat(Const(0, shift), room) - self.put_bytes) >> shift),
            fits.eq((spare >= 0) & ((spare != 0) | ~late) & notable),
            stores.eq(self.put.valid & (self.first & fits | ~self.first & ~dropping)),
            self.stat_drop.eq(self.put.valid & self.first & ~fits),
            put.addr.eq(write[:-1]),
            put.data.eq(self.put.payload),
            put.en.eq(stores),
        ]
        m.d.sync += [write.eq(write + stores), late.eq(stores), room.eq(start + self.depth - write)]
        with m.If(self.put.valid & self.first):
            m.d.sync += dropping.eq(~fits)
        if self.note_bits is not None:
            m.submodules.fifo = fifo = SyncFIFOBuffered(width=self.note_bits, depth=self.notes)
            m.d.comb += [
                fifo.w_data.eq(self.put_note),
                fifo.w_en.eq(stores & self.first),
                fifo.r_en.eq(leaves),
                notable.eq(fifo.w_rdy),
                self.note.eq(fifo.r_data),
                noted.eq(fifo.r_rdy),
                self.noted.eq(noted),
            ]

        # The memory's output register and one behind it: block RAM is slow, and what follows is long.
        filled, held, onward, moves = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            moves.eq(~held | self.o.ready & noted),
            onward.eq(~filled | moves),
            get.addr.eq(read[:-1]),
            get.en.eq(onward & (read != write)),
            self.o.valid.eq(held & noted),
            self.busy.eq(write != start),
        ]
        m.d.sync += read.eq(read + get.en)
        with m.If(onward):
            m.d.sync += filled.eq(get.en)
        with m.If(moves):
            m.d.sync += [held.eq(filled), self.o.payload.eq(get.data)]
        with m.If(self.o.valid & self.o.ready & self.o.payload.last):
            with m.If(self.again):
                # What was read ahead belongs to the next frame: forget it and go back.
                m.d.sync += [read.eq(start), filled.eq(0), held.eq(0)]
            with m.Else():
                m.d.comb += leaves.eq(1)
                m.d.sync += start.eq(read - filled)
        return m

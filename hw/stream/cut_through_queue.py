"""A queue that drops a packet for which it has no room, shows a packet while it still enters, and can repeat it."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.stream.packet import LENGTH_BITS, Packet, require_bus, word_of
from hw.stream.stored_word import StoredWord, majority, stored_word

__all__ = ["CutThroughQueue"]


class CutThroughQueue(wiring.Component):
    """A ring of words with a FIFO of the packets' `meta`.

    Entry: `i` never stalls. If the memory has no room for `length` bytes at a packet's first word, or the FIFO no room
    for its `meta`, the packet is dropped and `stat_drop` pulses.

    Exit: a word can be read 3 cycles after it was written, one word per cycle, and `o` comes from registers. With
    `bypass`, a word before which no other waits can be read 1 cycle after it was written, and words that enter in
    consecutive cycles can leave in consecutive cycles from any moment on. With the last word the consumer decides: if
    `repeat` is 1, the same packet is shown again, 3 cycles later; otherwise its memory is free 2 cycles later.

    No bit error in the memory moves the end of a packet, so later packets keep their `meta`.

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    depth : int
        Words that the memory holds, a power of two.
    meta : ShapeLike, optional
        Record that goes with each packet from `i` to `o`.
    packets : int
        Packets whose `meta` the queue holds, in LUT RAM.
    bypass : bool
        Whether words go past the memory to the output register while no other word waits. It costs a register of a
        word.

    Members
    -------
    length : LENGTH_BITS, in
        Bytes of the packet that `i` shows, constant from its first word to its last.
    repeat : 1, in
        Show the packet once more. Read when the last word of `o` is taken.
    stat_drop : 1, out
        A packet is dropped.
    free_words : range(depth + 1), out
        Free words; 0 if there is no room for another packet's `meta`. Memory that becomes free counts one cycle later.
    busy : 1, out
        A packet is inside.
    """

    def __init__(self, *, bus_bits: int, depth: int, meta=None, packets: int = 16, bypass: bool = False):
        require_bus("CutThroughQueue", bus_bits)
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"CutThroughQueue depth must be a power of two above 1, not {depth!r}")
        self.bus_bits, self.depth, self.meta, self.packets, self.bypass = bus_bits, depth, meta, packets, bypass
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits, meta=meta, first=True), always_ready=True)),
                "length": In(LENGTH_BITS),
                "o": Out(stream.Signature(Packet(bus_bits, meta=meta))),
                "repeat": In(1),
                "stat_drop": Out(1),
                "free_words": Out(range(depth + 1)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=StoredWord(self.bus_bits),
            depth=self.depth,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN | NEVER_READ_WHILE_WRITTEN,
        )
        writer, reader = memory.write_port(), memory.read_port()
        bits = self.depth.bit_length()
        write, start, read = (Signal(bits, name=name) for name in ("write", "start", "read"))
        dropping, has_meta, has_meta_room = Signal(), Signal(init=1), Signal(init=1)

        # Both values that `room` may take are there before it is known whether a word is stored, because that is known
        # late. Words that the exit frees count one cycle later.
        room, room_kept, room_used = Signal(bits, init=self.depth), Signal(bits), Signal(bits)
        fits, stores, leaves, shift = Signal(), Signal(), Signal(), exact_log2(self.bus_bits // 8)
        first = self.i.payload.first
        m.d.comb += [
            room_kept.eq(start + self.depth - write),
            room_used.eq(start + self.depth - 1 - write),
            fits.eq((Cat(Const(0, shift), room) >= self.length) & has_meta_room),
            stores.eq(self.i.valid & (first & fits | ~first & ~dropping)),
            self.stat_drop.eq(self.i.valid & first & ~fits),
            self.free_words.eq(Mux(has_meta_room, room, 0)),
            writer.addr.eq(write[:-1]),
            writer.data.eq(stored_word(self.i.payload, self.i.payload.error)),
            writer.en.eq(stores),
        ]
        m.d.sync += room.eq(Mux(stores, room_used, room_kept))
        with m.If(stores):
            m.d.sync += write.eq(write + 1)
        with m.If(self.i.valid & first):
            m.d.sync += dropping.eq(~fits)
        if self.meta is not None:
            m.submodules.fifo = fifo = Fifo(self.meta, depth=self.packets, buffered=False)
            m.d.comb += [
                fifo.i.payload.eq(self.i.payload.meta),
                fifo.i.valid.eq(stores & first),
                fifo.o.ready.eq(leaves),
                has_meta_room.eq(fifo.i.ready),
                has_meta.eq(fifo.o.valid),
                self.o.payload.meta.eq(fifo.o.payload),
            ]

        # Two registers at the exit, the memory's and one more: a block RAM is slow, and the consumer's path is long.
        filled, held, reads, moves, empty, free, passes, alone = (
            Signal(name=name) for name in ("filled", "held", "reads", "moves", "empty", "free", "passes", "alone")
        )
        shown, latest = Signal(Packet(self.bus_bits)), Signal(Packet(self.bus_bits), reset_less=True)
        m.d.comb += [
            moves.eq(~held | self.o.ready & has_meta),
            reads.eq(~filled | moves),
            reader.addr.eq(read[:-1]),
            empty.eq(read == write),
            reader.en.eq(reads & ~empty & ~(free & alone)),
            self.o.valid.eq(held & has_meta),
            word_of(self.o.payload).eq(shown),
            self.busy.eq(write != start),
        ]
        with m.If(Mux(empty, free & stores, reads)):
            m.d.sync += read.eq(read + 1)
        if self.bypass:
            # A word passes the memory if the registers are `free`. `latest` was written in the cycle before, and is the
            # only word that waits in the memory if it is `alone`.
            m.d.comb += [free.eq(~filled & moves), passes.eq(alone | stores & empty)]
            m.d.sync += [latest.eq(word_of(self.i.payload)), alone.eq(stores & Mux(free, alone, empty))]
        with m.If(reads):
            m.d.sync += filled.eq(reader.en)
        with m.If(moves):
            m.d.sync += [
                held.eq(filled | passes),
                shown.data.eq(reader.data.data),
                shown.count.eq(reader.data.count),
                shown.last.eq(majority(reader.data.last)),
                shown.error.eq(reader.data.mark),
            ]
            if self.bypass:
                # Whether a word is accepted is known late, and only `held` depends on that.
                with m.If(~filled):
                    m.d.sync += shown.eq(Mux(alone, latest, word_of(self.i.payload)))
        with m.If(self.o.valid & self.o.ready & self.o.payload.last):
            with m.If(self.repeat):
                # The words read ahead belong to the next packet: they are read again later.
                m.d.sync += [read.eq(start), filled.eq(0), held.eq(0), alone.eq(0)]
            with m.Else():
                m.d.comb += leaves.eq(1)
                m.d.sync += start.eq(read - filled)
        return m

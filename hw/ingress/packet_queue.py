"""The ingress queue: a store-and-forward queue that shows complete, sound and scanned frames."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2, exact_log2

from hw.ingress.scanner import Scanner
from hw.interface.headers import Scan
from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.stream.packet import Packet, first_of, is_truncated, require_bus
from hw.stream.skid_buffer import SkidBuffer
from hw.stream.stored_word import StoredWord, majority, parity_of, stored_word

__all__ = ["FRAME_BYTES_MIN", "PacketQueue"]

FRAME_BYTES_MIN = 60
"""IEEE 802.3 clause 3.2.8: 64 octets with the FCS, which the MAC has removed."""
SCANS_IN_FLIGHT = 8
"""Frames whose scans may still be on their way to the FIFO when it is found to be nearly full."""


class PacketQueue(wiring.Component):
    """Stores a frame, commits it if it ends well, and otherwise overwrites it with the next.

    `scans` shows one `Scan` for every frame in `o`, in the same order. A scan is valid from the first word of its frame
    on, so that the consumer knows at that word whether the frame is corrupt or has a NaN.

    Each word leaves with its `parity` from before it was stored, and each scan with `corrupt`. No bit error in the
    memories moves the end of a frame, so later frames keep their scans.

    One word per cycle on each side. A frame appears 7 cycles after its last word was taken. `i` stalls when the memory
    is full or too many scans wait. A frame that is shorter than `FRAME_BYTES_MIN`, longer than `frame_bytes_max` or has
    `error` is dropped and reported by a strobe.

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    depth : int
        Words that the memory holds, a power of two.
    frame_bytes_max : int
        Bytes of the longest frame that is accepted.
    scans_depth : int
        Scans that wait at most.
    uplinks : bool
        Whether scans have the fields of an uplink's tail.
    half_width : bool
        Whether scans read elements of two bytes.

    Members
    -------
    busy : 1, out
        A frame is inside, or a part of one.
    stat_frame, stat_error, stat_overflow, stat_runt, stat_oversize : 1, out
        A frame is committed, or dropped: for a bad FCS, because the port had no room for it, or for its length.
    """

    def __init__(
        self,
        *,
        bus_bits: int,
        depth: int,
        frame_bytes_max: int,
        scans_depth: int = 32,
        uplinks: bool = True,
        half_width: bool = False,
    ):
        require_bus("PacketQueue", bus_bits)
        # One word stays free, and the first word beyond the longest frame must enter to show that the frame is too
        # long.
        if depth & (depth - 1) or depth * bus_bits // 8 <= frame_bytes_max + bus_bits // 8:
            raise ValueError(
                "PacketQueue depth must be a power of two that holds more than a word beside a frame of "
                f"{frame_bytes_max} bytes, "
                f"not {depth!r}"
            )
        self.bus_bytes = bus_bits // 8
        self.depth = depth
        self.frame_bytes_max = frame_bytes_max
        self.scans_depth = scans_depth
        self.uplinks, self.half_width = uplinks, half_width
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits))),
                "o": Out(stream.Signature(Packet(bus_bits, parity=True))),
                "scans": Out(stream.Signature(Scan)),
                "busy": Out(1),
                "stat_frame": Out(1),
                "stat_error": Out(1),
                "stat_overflow": Out(1),
                "stat_runt": Out(1),
                "stat_oversize": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus_bits = 8 * self.bus_bytes
        m.submodules.memory = memory = Memory(
            shape=StoredWord(bus_bits),
            depth=self.depth,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN | NEVER_READ_WHILE_WRITTEN,
        )
        writer, reader = memory.write_port(), memory.read_port()
        pointer_bits = ceil_log2(self.depth) + 1
        start, write, committed, read = (
            Signal(pointer_bits, name=name) for name in ("start", "write", "committed", "read")
        )
        m.submodules.scanner = scanner = Scanner(
            bus_bits=bus_bits, tag_bits=pointer_bits, uplinks=self.uplinks, half_width=self.half_width
        )
        # In the FIFO, `corrupt` is the parity of the scan's other bits.
        m.submodules.fifo = fifo = Fifo(Scan, depth=self.scans_depth, buffered=False)
        # The skid buffer keeps `scans.ready` away from the level of the FIFO.
        m.submodules.shown = shown = SkidBuffer(Scan)
        m.d.comb += [
            shown.i.valid.eq(fifo.o.valid),
            shown.i.payload.eq(fifo.o.payload),
            shown.i.payload.corrupt.eq(fifo.o.payload.as_value().xor()),
            fifo.o.ready.eq(shown.i.ready),
        ]
        connect(m, shown.o, flipped(self.scans))

        # Entry: a frame begins at `start`, which moves behind the frame when the frame has ended well.
        word = self.i.payload
        # All words but the last are full, so lengths are compared without an addition. `words`: those before this one.
        shift = exact_log2(self.bus_bytes)
        words_max, bytes_max = divmod(self.frame_bytes_max, self.bus_bytes)
        words_min, bytes_min = divmod(FRAME_BYTES_MIN, self.bus_bytes)
        words = Signal(range(words_max + 1))
        frame_length = Signal(range(self.frame_bytes_max + 2 * self.bus_bytes))
        oversize, exceeds, is_short, taken, good = (
            Signal(name=name) for name in ("oversize", "exceeds", "is_short", "taken", "good")
        )
        first = first_of(m, self.i)
        at, following = Signal(pointer_bits), Signal(pointer_bits)
        # `room` is a cycle old, and a word may have entered since. The FIFO's level counts committed frames only.
        level, room = Signal(pointer_bits), Signal(init=1)
        m.d.comb += level.eq(at - read)
        m.d.sync += room.eq((level < self.depth - 1) & (fifo.level < self.scans_depth - SCANS_IN_FLIGHT))
        m.d.comb += [
            self.i.ready.eq(room | oversize),
            at.eq(Mux(first, start, write)),
            following.eq(at + 1),
            taken.eq(self.i.valid & self.i.ready),
            frame_length.eq(Cat(word.count[:shift], words + word.count[shift])),
            exceeds.eq((words == words_max) & (word.count > bytes_max)),
            is_short.eq((words < words_min) | ((words == words_min) & (word.count < bytes_min))),
            writer.addr.eq(at[:-1]),
            writer.data.eq(stored_word(word, parity_of(word))),
            writer.en.eq(taken & ~oversize),
        ]
        with m.If(taken):
            with m.If(~oversize):
                m.d.sync += write.eq(following)
            with m.If(word.last):
                m.d.comb += [
                    self.stat_overflow.eq(is_truncated(word)),
                    self.stat_error.eq(word.error & ~self.stat_overflow),
                    self.stat_runt.eq(~word.error & is_short & ~oversize),
                    self.stat_oversize.eq(~word.error & (oversize | exceeds)),
                    good.eq(~(word.error | self.stat_runt | self.stat_oversize)),
                ]
                m.d.sync += [words.eq(0), oversize.eq(0)]
                with m.If(good):
                    m.d.sync += start.eq(following)
            with m.Elif(~oversize):
                m.d.sync += [words.eq(words + 1), oversize.eq(exceeds)]

        # The scan commits the frame: its tag is the address behind the last word.
        m.d.comb += [
            scanner.word.eq(word),
            scanner.valid.eq(taken),
            scanner.first.eq(first),
            scanner.good.eq(good),
            scanner.length.eq(frame_length),
            scanner.tag.eq(following),
            fifo.i.valid.eq(scanner.done),
            fifo.i.payload.eq(scanner.scan),
            fifo.i.payload.corrupt.eq(scanner.scan.as_value().xor()),
            self.stat_frame.eq(scanner.done),
        ]
        with m.If(scanner.done):
            m.d.sync += committed.eq(scanner.tag_o)

        # Exit: the register of the read port is the output register.
        filled, moves = Signal(), Signal()
        m.d.comb += [
            moves.eq(~filled | self.o.ready),
            reader.addr.eq(read[:-1]),
            reader.en.eq(moves & (read != committed)),
            self.o.payload.data.eq(reader.data.data),
            self.o.payload.count.eq(reader.data.count),
            self.o.payload.last.eq(majority(reader.data.last)),
            self.o.payload.parity.eq(reader.data.mark),
            self.o.valid.eq(filled),
            self.busy.eq((start != read) | filled | ~first),
        ]
        with m.If(moves):
            m.d.sync += filled.eq(reader.en)
        with m.If(reader.en):
            m.d.sync += read.eq(read + 1)
        return m

"""The receiving half of the MAC: XGMII to frames."""

from enum import Enum

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.ethernet.crc import RESIDUE, Crc32
from hw.ethernet.xgmii import ALL_IDLE, PREAMBLE, START, TERMINATE, Xgmii, holds
from hw.stream.packet import Packet

__all__ = ["Receiver"]

BYTES = 8
FCS_BYTES = 4


class Seen(data.Struct):
    """A word in its frame's own alignment. `count` is the number of bytes before the first control character. `sound`:
    that character is a terminate, or there is none; in a `start`: the preamble is complete."""

    word: 64
    count: range(BYTES + 1)
    start: 1
    sound: 1


class Kind(Enum):
    """The kind of word that is held back until the next word is seen, because the FCS may begin in it. TAIL: the frame
    has no further bytes."""

    NOTHING = 0
    PREAMBLE = 1
    DATA = 2
    TAIL = 3


class Held(data.Struct):
    kind: Kind
    word: 64
    count: range(BYTES + 1)
    bad: 1


class FramePart(data.Struct):
    """The part of a word that belongs to the frame."""

    word: Packet(8 * BYTES)
    valid: 1


class Receiver(wiring.Component):
    """XGMII words to frames without preamble and FCS (clauses 4.2.4 and 46).

    Starts in lanes 0 and 4; gaps from 5 bytes on, with the terminate among them. Each start gives exactly one frame in
    `o`, of at least one byte; only a start in lane 4 followed by another one 4 bytes later gives none. `error` is set
    with `last` if the FCS is wrong, if anything but data stands before the terminate (an error, a sequence, idle, the
    next start), if the preamble is incomplete, or if there are fewer than 5 bytes. Frames may have any length; a limit
    is the consumer's to check. One word every cycle. The last word of a frame comes LATENCY cycles after the terminate,
    one more if data stands beside it. `o` cannot stall.
    """

    LATENCY = Crc32.LATENCY + 4

    def __init__(self):
        super().__init__(
            {"xgmii": In(Xgmii, init=ALL_IDLE), "o": Out(stream.Signature(Packet(8 * BYTES), always_ready=True))}
        )

    def elaborate(self, platform):
        m = Module()
        seen = self._see(m, self._align(m))
        held, part = Signal(Held), Signal(FramePart)
        is_open = (held.kind == Kind.PREAMBLE) | (held.kind == Kind.DATA)
        goes_on, ends, beside = Signal(), Signal(), Signal()
        m.d.comb += [
            goes_on.eq(is_open & ~seen.start & seen.sound & (seen.count == BYTES)),
            ends.eq(is_open & ~goes_on),
            # The word with the terminate also has bytes of the frame.
            beside.eq(ends & ~seen.start & seen.sound & (seen.count > FCS_BYTES)),
        ]

        m.submodules.crc = crc = Crc32()
        m.d.comb += [crc.valid.eq(is_open), crc.data.eq(seen.word), crc.count.eq(seen.count), crc.last.eq(ends)]
        right = Signal()
        with m.If(crc.done):
            m.d.sync += right.eq(crc.fcs == RESIDUE)

        m.d.sync += [held.word.eq(seen.word), held.count.eq(Mux(beside, seen.count - FCS_BYTES, BYTES))]
        with m.If(seen.start):
            m.d.sync += [held.kind.eq(Kind.PREAMBLE), held.bad.eq(~seen.sound)]
        with m.Else():
            m.d.sync += held.kind.eq(Mux(goes_on, Kind.DATA, Mux(beside, Kind.TAIL, Kind.NOTHING)))

        m.d.sync += [
            part.valid.eq((held.kind == Kind.TAIL) | (held.kind == Kind.DATA) | ends & ~beside),
            part.word.data.eq(held.word),
            part.word.count.eq(held.count),
            part.word.last.eq((held.kind == Kind.TAIL) | ends & ~beside),
            part.word.error.eq(held.bad),
        ]
        with m.If(ends & ~beside):
            with m.If(held.kind == Kind.PREAMBLE):
                m.d.sync += [part.word.count.eq(1), part.word.error.eq(1)]
            with m.Elif(seen.start | ~seen.sound):
                m.d.sync += part.word.error.eq(1)
            with m.Else():
                m.d.sync += part.word.count.eq(FCS_BYTES + seen.count)

        for _ in range(Crc32.LATENCY):
            waited = Signal(FramePart)
            m.d.sync += waited.eq(part)
            part = waited
        m.d.comb += [
            self.o.valid.eq(part.valid),
            self.o.payload.eq(part.word),
            self.o.payload.error.eq(part.word.last & (part.word.error | ~right)),
        ]
        return m

    def _align(self, m) -> Signal:
        """Return words with their frame's start in lane 0. If a frame starts in lane 4, a word is half of one and half
        of the next; when the next start stands in lane 0, the rest of the last word is gap."""
        raw, aligned, held = (
            Signal(Xgmii, init=ALL_IDLE),
            Signal(Xgmii, init=ALL_IDLE),
            Signal(data.StructLayout({"data": 32, "control": 4})),
        )
        early, late, shifted = Signal(), Signal(), Signal()
        m.d.sync += [
            raw.eq(self.xgmii),
            early.eq(holds(self.xgmii, 0, START)),
            late.eq(holds(self.xgmii, BYTES // 2, START)),
            held.data.eq(raw.data[32:]),
            held.control.eq(raw.control[4:]),
        ]
        with m.If(early | late):
            m.d.sync += shifted.eq(late)
        takes_half = shifted & ~early
        m.d.sync += [
            aligned.data.eq(Mux(takes_half, Cat(held.data, raw.data[:32]), raw.data)),
            aligned.control.eq(Mux(takes_half, Cat(held.control, raw.control[:4]), raw.control)),
        ]
        return aligned

    def _see(self, m, aligned) -> Signal:
        seen, count, sound = Signal(Seen), Signal(range(BYTES + 1), init=BYTES), Signal(init=1)
        for lane in reversed(range(BYTES)):
            with m.If(aligned.control[lane]):
                m.d.comb += [count.eq(lane), sound.eq(holds(aligned, lane, TERMINATE))]
        start = holds(aligned, 0, START)
        is_preamble = (aligned.data == PREAMBLE["data"]) & (aligned.control == PREAMBLE["control"])
        m.d.sync += [
            seen.word.eq(aligned.data),
            seen.count.eq(count),
            seen.start.eq(start),
            seen.sound.eq(Mux(start, is_preamble, sound)),
        ]
        return seen

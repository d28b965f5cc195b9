"""The frame check sequence of Ethernet, eight bytes a cycle."""

from functools import reduce
from operator import xor

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.stages import Stages

__all__ = ["RESIDUE", "Crc32"]

POLYNOMIAL = 0xEDB88320
"""IEEE 802.3 clause 3.2.9, bit 0 of each byte first: the coefficient of x^31 is bit 0."""
START = 0xFFFFFFFF
RESIDUE = 0x2144DF1C
"""Value of `fcs` over a frame and its own FCS, the same for all frames."""
BYTES = 8


def after(state: int, zeros: int) -> int:
    """Return the register after a number of zero bytes."""
    for _ in range(8 * zeros):
        state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state


def tree(bits: list) -> Signal:
    """Return the exclusive or of the terms, as the shallowest tree."""
    while len(bits) > 1:
        bits = [reduce(xor, bits[k : k + 6]) for k in range(0, len(bits), 6)]
    return bits[0] if bits else Const(0, 1)


def linear(columns: list[int], bits) -> list:
    """Return the bits of the exclusive or of the columns whose bit is set."""
    return [tree([bit for bit, column in zip(bits, columns, strict=True) if column >> row & 1]) for row in range(32)]


class Aligned(data.Struct):
    """The bytes at the end of the word, behind zeros: leading zeros change nothing in a register of zeros."""

    word: 8 * BYTES
    count: range(BYTES + 1)
    valid: 1
    last: 1


class Folded(data.Struct):
    """The register after the word alone."""

    fold: 32
    count: range(BYTES + 1)
    valid: 1
    last: 1


class Summed(data.Struct):
    """At the end of a frame: the register before the last word, not yet advanced by that word's bytes."""

    state: 32
    fold: 32
    count: range(BYTES + 1)
    last: 1


class Moved4(data.Struct):
    """Advanced by 8 or by 4 bytes, if the word has as many."""

    state: 32
    fold: 32
    count: 2
    last: 1


class Moved2(data.Struct):
    state: 32
    fold: 32
    count: 1
    last: 1


class Moved1(data.Struct):
    state: 32
    last: 1


class Crc32(wiring.Component):
    """CRC-32 of frames in words of up to 8 bytes. A frame ends with `last`, and the next one may begin in the next
    cycle.

    Only the last word may be short, even empty (`count` 0). `fcs` is valid in the cycle with `done`, LATENCY cycles
    after the last word; its byte 0 is sent first. One word a cycle, with any pauses. Two to three LUTs of six inputs
    between registers.
    """

    STAGES = (Aligned, Folded, Summed, Moved4, Moved2, Moved1)
    LATENCY = len(STAGES)

    def __init__(self):
        super().__init__(
            {
                "valid": In(1),
                "data": In(8 * BYTES),
                "count": In(range(BYTES + 1)),
                "last": In(1),
                "done": Out(1),
                "fcs": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pipe = Stages(m, self.STAGES)
        by = {zeros: [after(1 << bit, zeros) for bit in range(32)] for zeros in (1, 2, 4, 8)}
        # Each byte of the word is added to the register's lowest eight bits, and the bytes from there to the end
        # of the word advance it.
        word_columns = [after(1 << bit % 8, BYTES - bit // 8) for bit in range(8 * BYTES)]

        shifted = Signal(8 * BYTES)
        with m.Switch(self.count):
            for count in range(1, BYTES + 1):
                with m.Case(count):
                    m.d.comb += shifted.eq(self.data << 8 * (BYTES - count))
        aligned = pipe.then(Aligned, word=shifted, count=self.count, valid=self.valid, last=self.valid & self.last)

        fold = Signal(32)
        m.d.comb += [fold[row].eq(bit) for row, bit in enumerate(linear(word_columns, aligned.word))]
        folded = pipe.then(Folded, fold=fold)

        state = Signal(32, init=START)
        moved = Signal(32)
        m.d.comb += [moved[row].eq(bit ^ folded.fold[row]) for row, bit in enumerate(linear(by[8], state))]
        with m.If(folded.valid):
            m.d.sync += state.eq(Mux(folded.last, START, moved))
        summed = pipe.then(Summed, state=state)

        def moves(stage, zeros, *, all_of_them=None):
            """Return the register advanced by `zeros` bytes if the word has as many, and by eight if it has eight."""
            out = Signal(32, name=f"behind_{zeros}")
            for row, bit in enumerate(linear(by[zeros], stage.state)):
                chosen = Mux(stage.count & zeros != 0, bit, stage.state[row])
                m.d.comb += out[row].eq(Mux(stage.count[3], all_of_them[row], chosen) if all_of_them else chosen)
            return out

        moved4 = pipe.then(
            Moved4, state=moves(summed, 4, all_of_them=linear(by[8], summed.state)), count=summed.count[:2]
        )
        moved2 = pipe.then(Moved2, state=moves(moved4, 2), count=moved4.count[:1])
        moved1 = pipe.then(Moved1, state=~(moves(moved2, 1) ^ moved2.fold))
        m.d.comb += [self.done.eq(moved1.last), self.fcs.eq(moved1.state)]
        return m

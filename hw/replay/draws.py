"""Where in the total the draws of a batch fall: random fractions, anywhere or one to a stratum."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Batch", "Draws"]

ZERO = 0x9E3779B97F4A7C15
PIECE_BITS = 16
"""Of a random number, multiplied in one cycle."""


class Batch(data.Struct):
    """A request: `count` draws, from 1; the generator's seed; `stride` 0, or 2^64 / `count` for strata."""

    count: 16
    stride: 64
    seed: 128


class Draws(wiring.Component):
    """Turns a batch into `count` fractions of 2^64, the first 7 cycles after it was taken, then one a cycle; the next batch is taken with the last of
    them. While `fractions` are not taken everything stands still. With `stride` 0 a fraction is a number of the generator; else draw k is
    uniform in [k, k + 1) strides: k * stride, plus the high half of number * stride.

    The generator is xoroshiro128++ (Blackman and Vigna, ACM TOMS 47, 2021), started from the batch's seed: a whole number of 64 bits
    for each draw, without a word in common with the next. The truth is `sim/model/replay/draws.py`.
    """

    batches: In(stream.Signature(Batch))
    fractions: Out(stream.Signature(data.StructLayout({"fraction": 64, "last": 1})))

    def elaborate(self, platform):
        m = Module()
        asked = self.batches.payload
        step = Signal()  # the whole pipe goes on
        m.d.comb += step.eq(~self.fractions.valid | self.fractions.ready)

        left, low, high = Signal.like(asked.count), Signal(64), Signal(64)
        stride, base = Signal(64), Signal(64)
        running, last = Signal(), Signal()
        m.d.comb += [running.eq(left != 0), last.eq(left == 1), self.batches.ready.eq(step & (~running | last))]
        mixed, doubled = high ^ low, Signal(64)
        m.d.comb += doubled.eq(low.rotate_left(49) ^ mixed ^ (mixed << 21))
        with m.If(step):
            m.d.sync += [left.eq(left - running), low.eq(doubled), high.eq(mixed.rotate_left(28)), base.eq(base + stride)]
            with m.If(self.batches.ready):
                m.d.sync += left.eq(Mux(self.batches.valid, asked.count, 0))
                m.d.sync += [Cat(low, high).eq(Mux(asked.seed == 0, ZERO, asked.seed)), stride.eq(asked.stride), base.eq(0)]

        # sum, scrambled number, and then the product from its low end
        stage = data.StructLayout({"valid": 1, "last": 1, "base": 64, "stride": 64, "low": 64, "number": 64})
        summed, number = Signal(stage), Signal(stage)
        with m.If(step):
            m.d.sync += [
                summed.valid.eq(running), summed.last.eq(last), summed.base.eq(base), summed.stride.eq(stride), summed.low.eq(low),
                summed.number.eq(low + high), number.eq(summed), number.number.eq(summed.number.rotate_left(17) + summed.low),
            ]
        at, product = number, Const(0, 64 + PIECE_BITS)
        for piece in range(64 // PIECE_BITS):
            after, sum = Signal(stage, name=f"piece_{piece}"), Signal(64 + PIECE_BITS, name=f"product_{piece}")
            with m.If(step):
                m.d.sync += [after.eq(at), sum.eq((product >> PIECE_BITS) + at.number.word_select(piece, PIECE_BITS) * at.stride)]
            at, product = after, sum
        m.d.comb += [
            self.fractions.valid.eq(at.valid), self.fractions.payload.last.eq(at.last),
            self.fractions.payload.fraction.eq(Mux(at.stride == 0, at.number, at.base + (product >> PIECE_BITS))),
        ]
        return m

"""Where in the total the draws of a batch fall: random fractions, anywhere or one to a stratum."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.replay.sampling.multiplier import LATENCY, multiply_high

__all__ = ["Batch", "Fraction", "RandomFractions"]

ZERO = 0x9E3779B97F4A7C15


class Batch(data.Struct):
    """A request: `count` draws, from 1; the generator's seed; `stride` 0, or 2^64 / `count` for strata."""

    count: 16
    stride: 64
    seed: 128


class Fraction(data.Struct):
    """A fraction of 2^64; `last` of its batch."""

    fraction: 64
    last: 1


class RandomFractions(wiring.Component):
    """Turns a batch into `count` fractions of 2^64, the first 7 cycles after it was taken, then one a cycle; the next
    batch is taken with the last of them. While `fractions` are not taken everything stands still. With `stride` 0 a
    fraction is a number of the generator; else draw k is uniform in [k, k + 1) strides: k * stride, plus the high half
    of number * stride.

    The generator is xoroshiro128++ (Blackman and Vigna, ACM TOMS 47, 2021), started from the batch's seed: a whole
    number of 64 bits for each draw, without a word in common with the next. The truth is `sim/model/replay/draws.py`.
    """

    batches: In(stream.Signature(Batch))
    fractions: Out(stream.Signature(Fraction))

    def elaborate(self, platform):
        m = Module()
        asked = self.batches.payload
        step = Signal()  # the whole pipe goes on
        m.d.comb += step.eq(~self.fractions.valid | self.fractions.ready)

        left, low, high = Signal.like(asked.count), Signal(64), Signal(64)
        stride, base = Signal(64), Signal(64)
        running, last, anywhere = Signal(), Signal(), Signal()
        m.d.comb += [running.eq(left != 0), last.eq(left == 1), self.batches.ready.eq(step & (~running | last))]
        mixed, doubled = high ^ low, Signal(64)
        m.d.comb += doubled.eq(low.rotate_left(49) ^ mixed ^ (mixed << 21))
        with m.If(step):
            m.d.sync += [
                left.eq(left - running),
                low.eq(doubled),
                high.eq(mixed.rotate_left(28)),
                base.eq(base + stride),
            ]
            with m.If(self.batches.ready):
                m.d.sync += left.eq(Mux(self.batches.valid, asked.count, 0))
                m.d.sync += [
                    Cat(low, high).eq(Mux(asked.seed == 0, ZERO, asked.seed)),
                    stride.eq(asked.stride),
                    base.eq(0),
                ]
                m.d.sync += anywhere.eq(asked.stride == 0)

        # sum, scrambled number, and then the product
        stage = data.StructLayout({"valid": 1, "last": 1, "base": 64, "stride": 64, "anywhere": 1, "number": 64})
        summed, number, low_summed = Signal(stage), Signal(stage), Signal(64, reset_less=True)
        with m.If(step):
            m.d.sync += [
                summed.valid.eq(running),
                summed.last.eq(last),
                summed.base.eq(base),
                summed.stride.eq(stride),
                summed.anywhere.eq(anywhere),
                summed.number.eq(low + high),
                low_summed.eq(low),
                number.eq(summed),
                number.number.eq(summed.number.rotate_left(17) + low_summed),
            ]
        # With stride 0 the product and the base are 0.
        begins = Signal(64, reset_less=True)
        with m.If(step):
            m.d.sync += begins.eq(number.base | Mux(number.anywhere, number.number, 0))
        fraction = multiply_high(m, number.number, number.stride, name="within", plus=begins, goes=step)
        shown = [
            number,
            *(Signal(data.StructLayout({"valid": 1, "last": 1}), name=f"shown_{k}") for k in range(LATENCY)),
        ]
        with m.If(step):
            for before, after in pairwise(shown):
                m.d.sync += [after.valid.eq(before.valid), after.last.eq(before.last)]
        m.d.comb += [
            self.fractions.valid.eq(shown[-1].valid),
            self.fractions.payload.last.eq(shown[-1].last),
            self.fractions.payload.fraction.eq(fraction),
        ]
        return m

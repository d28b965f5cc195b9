"""Random fractions at which a batch of samples is taken: uniform, or one in each stratum."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.replay.sampling.multiplier import LATENCY, multiply_high

__all__ = ["Batch", "Fraction", "RandomFractions"]

SEED_INSTEAD_OF_ZERO = 0x9E3779B97F4A7C15


class Batch(data.Struct):
    """`count` fractions, at least 1. `stride` is 2^64 / `count` for strata, else 0. `seed` starts the generator."""

    count: 16
    stride: 64
    seed: 128


class Fraction(data.Struct):
    """A fraction of 2^64; `last` of its batch."""

    fraction: 64
    last: 1


class RandomFractions(wiring.Component):
    """Turns a batch into `count` random fractions of 2^64.

    Without a stride a fraction is a number of the generator. With a stride fraction k is uniform in [k, k + 1) strides:
    k * stride, plus the high half of number * stride.

    Latency: 7 cycles from a batch to its first fraction, then one fraction in each cycle. The next batch is taken with
    the last fraction of the one before. While `fractions` stalls, the pipeline stalls.

    The generator is xoroshiro128++ (Blackman and Vigna, ACM TOMS 47, 2021), started from the batch's seed. It gives a
    number of 64 bits for each fraction, and two numbers have no word in common. The golden model is
    `host/iswitch/golden/replay/fractions.py`.
    """

    batches: In(stream.Signature(Batch))
    fractions: Out(stream.Signature(Fraction))

    def elaborate(self, platform):
        m = Module()
        batch = self.batches.payload
        advance = Signal()  # the pipeline advances
        m.d.comb += advance.eq(~self.fractions.valid | self.fractions.ready)

        left, low, high = Signal.like(batch.count), Signal(64), Signal(64)
        stride, base = Signal(64), Signal(64)
        running, last, unstratified = Signal(), Signal(), Signal()
        m.d.comb += [running.eq(left != 0), last.eq(left == 1), self.batches.ready.eq(advance & (~running | last))]
        mixed, doubled = high ^ low, Signal(64)
        m.d.comb += doubled.eq(low.rotate_left(49) ^ mixed ^ (mixed << 21))
        with m.If(advance):
            m.d.sync += [
                left.eq(left - running),
                low.eq(doubled),
                high.eq(mixed.rotate_left(28)),
                base.eq(base + stride),
            ]
            with m.If(self.batches.ready):
                m.d.sync += left.eq(Mux(self.batches.valid, batch.count, 0))
                m.d.sync += [
                    Cat(low, high).eq(Mux(batch.seed == 0, SEED_INSTEAD_OF_ZERO, batch.seed)),
                    stride.eq(batch.stride),
                    base.eq(0),
                ]
                m.d.sync += unstratified.eq(batch.stride == 0)

        # The generator's sum, the scrambled number, and then the product with the stride.
        stage = data.StructLayout({"valid": 1, "last": 1, "base": 64, "stride": 64, "unstratified": 1, "number": 64})
        summed, number, low_summed = Signal(stage), Signal(stage), Signal(64, reset_less=True)
        with m.If(advance):
            m.d.sync += [
                summed.valid.eq(running),
                summed.last.eq(last),
                summed.base.eq(base),
                summed.stride.eq(stride),
                summed.unstratified.eq(unstratified),
                summed.number.eq(low + high),
                low_summed.eq(low),
                number.eq(summed),
                number.number.eq(summed.number.rotate_left(17) + low_summed),
            ]
        # Without a stride the product and the base are 0, and the number itself is added.
        offset = Signal(64, reset_less=True)
        with m.If(advance):
            m.d.sync += offset.eq(number.base | Mux(number.unstratified, number.number, 0))
        fraction = multiply_high(m, number.number, number.stride, name="in_stratum", addend=offset, enable=advance)
        delayed = [
            number,
            *(Signal(data.StructLayout({"valid": 1, "last": 1}), name=f"delayed_{k}") for k in range(LATENCY)),
        ]
        with m.If(advance):
            for source, register in pairwise(delayed):
                m.d.sync += [register.valid.eq(source.valid), register.last.eq(source.last)]
        m.d.comb += [
            self.fractions.valid.eq(delayed[-1].valid),
            self.fractions.payload.last.eq(delayed[-1].last),
            self.fractions.payload.fraction.eq(fraction),
        ]
        return m

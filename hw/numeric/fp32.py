"""IEEE 754 binary32 addition, as a sum in a window that is fitted to the larger operand.

With the larger operand at the top of the window, a smaller one up to 31 binary places below is added without loss. An
operand further below has the same effect as one 31 places below: the result's last bit is at most 24 places below the
first bit of the larger operand and the guard bit 25, and of all bits below the guard bit only counts whether any is 1.
So the sum in the window rounds as the exact sum does, and the rounding of `window64` is the only one.
"""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.numeric.window64 import BOTTOM
from hw.stream.stages import Stages, once

__all__ = ["DISTANCE_MAX", "Fitter"]

DISTANCE_MAX = 31


class Fitter(wiring.Component):
    """Chooses the window of an addition, and the two operands in it.

    With `fit`, the window is that of the larger of the stored float32 and `addend`. `base` is the larger mantissa,
    `term` the smaller one, `distance` the difference of the exponents, and `negative` the sign of the larger, or + if
    the two cancel. Without `fit`, the window is given, `base` is all of `stored`, and `term` is the addend's mantissa,
    or with `whole` all of its bits. `subtract`: the term is subtracted. With `first`, the stored value counts as a zero
    that changes no sum.

    Latency `LATENCY`, one pair per cycle, never stalls. NaN and infinity have exponent 255 in `origin`. Of an infinity
    and a NaN, the NaN is the larger pattern.
    """

    class Fitted(data.Struct):
        base: 64
        term: 32
        distance: 6
        origin: 9
        subtract: 1
        negative: 1
        cancels: 1

    STAGES = (Fitted,)
    LATENCY = len(STAGES)

    fit: In(1)
    whole: In(1)
    first: In(1)
    stored: In(64)
    addend: In(32)
    hidden: In(1)
    distance: In(6)
    origin: In(9)
    base: Out(64)
    term: Out(32)
    distance_fitted: Out(6)
    origin_fitted: Out(9)
    subtract: Out(1)
    negative: Out(1)
    cancels: Out(1)

    def elaborate(self, platform):
        m = Module()
        old, new = self.stored[:32], self.addend
        old_hidden, new_hidden = once(m, "old_hidden", old[23:31].any()), self.hidden
        old_is_larger = once(m, "old_is_larger", ~self.first & (old[:31] > new[:31]))
        differ = once(m, "differ", ~self.first & (old[31] ^ new[31]))
        cancels = once(m, "cancels_now", differ & (old[:31] == new[:31]))

        old_exponent = once(m, "old_exponent", old[23:31] | ~old_hidden)  # a subnormal has exponent 1
        new_exponent = once(m, "new_exponent", new[23:31] | ~new_hidden)
        gap = once(m, "gap", Mux(old_is_larger, (old_exponent - new_exponent)[:8], (new_exponent - old_exponent)[:8]))
        old_mantissa, new_mantissa = Cat(old[:23], old_hidden), Cat(new[:23], new_hidden)
        larger = Mux(old_is_larger, old_mantissa, new_mantissa)
        smaller = Mux(old_is_larger, new_mantissa, Mux(self.first, 0, old_mantissa))

        kept = Mux(self.first, 0, self.stored)
        fitted = Stages(m, self.STAGES).then(
            self.Fitted,
            base=Mux(self.fit, Cat(Const(0, BOTTOM), larger), kept),
            term=Mux(self.fit, smaller, Mux(self.whole, new, new_mantissa)),
            distance=Mux(self.fit, Mux(gap[5:].any(), DISTANCE_MAX, gap[:5]), self.distance),
            origin=Mux(self.fit, Mux(old_is_larger, old_exponent, new_exponent), self.origin),
            subtract=Mux(self.fit, differ, new[31] & ~self.whole),
            negative=self.fit & ~cancels & Mux(old_is_larger, old[31], new[31]),
            cancels=cancels,
        )
        m.d.comb += [self.distance_fitted.eq(fitted.distance), self.origin_fitted.eq(fitted.origin)]
        for name in ("base", "term", "subtract", "negative", "cancels"):
            m.d.comb += getattr(self, name).eq(getattr(fitted, name))
        return m

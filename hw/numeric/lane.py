"""The arithmetic of one element: all formats in one pipeline."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.numeric.formats import adds_as, is_binary16, is_half
from hw.numeric.fp32 import Fitter
from hw.numeric.half import BIAS_DIFFERENCE
from hw.numeric.window64 import BOTTOM, MANTISSA_BITS, ROOM_BITS, Aligner, Locator, Normaliser, Rounder
from hw.stream.stages import Stages, once
from iswitch.wire.formats import Arithmetic

__all__ = ["POISON", "STORED_BITS", "Lane"]

STORED_BITS = 65
"""Bits of an element in a slot: the accumulator, and above it the poison bit."""
POISON = 1 << 63
"""A poisoned element of an uplink. No sum of 32 terms below 2^58 has this value."""


class Lane(wiring.Component):
    """Adds `operand` to the stored element, and rounds the sum for the wire.

    All inputs are read in cycle t, but `stored` and `wide` in t + READ_AT. `flushed` is valid in t + FLUSHED_AT, `sum`,
    which is stored next, in t + WRITE_AT, and `result` in t + RESULT_AT; all are registers. One element per cycle, of
    any format; never stalls. An element must not be read again before it is written, WRITE_AT - READ_AT cycles later.

    `first`: the stored element is ignored. Without `include` the operand is ignored; `first` without `include` stores
    0.

    `window64` rejects an included operand whose biased exponent is `limit` = min(255, 185 - F) or more: the operand
    adds nothing and sets the poison bit. The result of a poisoned element is NaN, 0x7FC00000. `flushed`: with `valid`,
    a non-zero term was rounded to 0. `wide` is a 64-bit term of a `window64` sum, without an included operand, and 0
    otherwise; -2^63 sets the poison bit. `fp32` and `int32` use the low 32 bits of the accumulator; the other bits and
    the poison bit are stored as 0. Numbers that are no format of a job give results without meaning.

    The half-width formats add as `window64`: an operand is a binary32 number, and the sum is rounded once to an element
    of the format, which `hw.numeric.half.narrowed` takes from `result`.

    Stages: | 2 locate | fit | align | sum | 3 normalise | round |. Rounding a term and its sign need no adder:
    sum = base + (magnitude xor sign) + (round up xor sign). The adder's steps are those of Muller et al., Handbook of
    Floating-Point Arithmetic, 2nd ed., chapter 8. The accumulator is Kulisch's, restricted to the job's window.

    Parameters
    ----------
    half_width : bool
        Whether the lane knows the half-width formats.
    """

    class Entered(data.Struct):
        window: 1
        fit: 1
        whole: 1
        first: 1

    class Fitted(data.Struct):
        window: 1
        fit: 1
        whole: 1
        poison: 1
        counts: 1
        wide: 64

    class Aligned(data.Struct):
        window: 1
        whole: 1
        base: 64
        subtract: 1
        counts: 1
        ceiling: 9
        negative: 1
        nan: 1
        infinite: 1
        wide: 64

    class Summed(data.Struct):
        window: 1
        whole: 1
        total: 64
        flushed: 1
        ceiling: 9
        negative: 1
        nan: 1
        infinite: 1

    class Normalised(data.Struct):
        window: 1
        whole: 1
        total: 64
        negative: 1
        nan: 1
        infinite: 1

    class Rounded(data.Struct):
        low: 32
        high: 32
        poison: 1
        result: 32

    class Form(data.Struct):
        half: 1
        binary16: 1

    STAGES = (
        (Entered,) * Locator.LATENCY
        + (Fitted,) * Fitter.LATENCY
        + (Aligned,) * Aligner.LATENCY
        + (Summed,)
        + (Normalised,) * Normaliser.LATENCY
        + (Rounded,)
    )
    READ_AT = STAGES.index(Fitted)
    FLUSHED_AT = STAGES.index(Summed) + 1
    WRITE_AT = RESULT_AT = STAGES.index(Rounded) + 1

    def __init__(self, *, half_width: bool = False):
        self.half_width = half_width
        super().__init__(
            {
                "format": In(4),
                "fraction": In(signed(9)),
                "limit": In(8),
                "operand": In(32),
                "include": In(1),
                "first": In(1),
                "valid": In(1),
                "stored": In(STORED_BITS),
                "wide": In(64),
                "flushed": Out(1),
                "sum": Out(STORED_BITS),
                "result": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.locator = locator = Locator()
        m.submodules.fitter = fitter = Fitter()
        m.submodules.aligner = aligner = Aligner()
        m.submodules.normaliser = normaliser = Normaliser(half_width=self.half_width)
        m.submodules.rounder = rounder = Rounder(half_width=self.half_width)
        pipe = Stages(m, self.STAGES)

        window = once(m, "window", adds_as(self.format, Arithmetic.WINDOW, half_width=self.half_width))
        fit = once(m, "fit", adds_as(self.format, Arithmetic.FLOAT, half_width=self.half_width))
        whole = once(m, "whole", adds_as(self.format, Arithmetic.INTEGER, half_width=self.half_width))
        m.d.comb += [
            locator.window.eq(window),
            locator.fit.eq(fit),
            locator.whole.eq(whole),
            locator.fraction.eq(self.fraction),
            locator.limit.eq(self.limit),
            locator.operand.eq(self.operand),
            locator.include.eq(self.include),
            locator.first.eq(self.first),
            locator.valid.eq(self.valid),
        ]
        entered = pipe.then(self.Entered, window=window, fit=fit, whole=whole, first=self.first)
        for _ in range(Locator.LATENCY - 1):
            entered = pipe.then(self.Entered)

        m.d.comb += [
            fitter.fit.eq(entered.fit),
            fitter.whole.eq(entered.whole),
            fitter.first.eq(entered.first),
            fitter.stored.eq(self.stored[:64]),
            fitter.addend.eq(locator.addend),
            fitter.hidden.eq(locator.hidden),
            fitter.distance.eq(locator.distance),
            fitter.origin.eq(locator.origin),
        ]
        poisons = once(m, "poisons", self.wide == POISON)
        poison = entered.window & (self.stored[64] & ~entered.first | locator.rejects | poisons)
        fitted = pipe.then(self.Fitted, poison=poison, counts=locator.counts, wide=Mux(poisons, 0, self.wide))

        m.d.comb += [aligner.term.eq(fitter.term), aligner.distance.eq(fitter.distance_fitted)]
        infinite = once(m, "infinite", fitted.fit & fitter.origin_fitted[:8].all())
        is_fraction_zero = ~fitter.base[BOTTOM : BOTTOM + MANTISSA_BITS - 1].any()
        # The exponents of binary16 have another bias.
        forms = self._forms(m) if self.half_width else []
        room = ROOM_BITS
        if forms:
            room = Mux(forms[self.STAGES.index(self.Aligned)].binary16, ROOM_BITS - BIAS_DIFFERENCE, ROOM_BITS)
        aligned = pipe.then(
            self.Aligned,
            wide=fitted.wide,
            base=fitter.base,
            subtract=fitter.subtract,
            negative=fitter.negative,
            ceiling=(fitter.origin_fitted + room)[:9],
            infinite=infinite,
            nan=fitted.poison | infinite & (~is_fraction_zero | fitter.cancels),
        )

        round_up = once(m, "round_up", aligner.guard & (aligner.sticky | aligner.magnitude[0]))
        term = once(
            m, "term", Mux(aligned.subtract, ~Cat(aligner.magnitude, Const(0, 6)), aligner.magnitude) | aligned.wide
        )
        uncarried = once(m, "uncarried", (aligned.base + term)[:64])
        summed = pipe.then(
            self.Summed,
            total=(uncarried + (round_up ^ aligned.subtract))[:64],
            flushed=aligned.counts & ~round_up & (aligner.magnitude == 0),
        )
        m.d.comb += self.flushed.eq(summed.flushed)

        m.d.comb += [normaliser.total.eq(summed.total), normaliser.ceiling.eq(summed.ceiling)]
        for _ in range(Normaliser.LATENCY):
            normalised = pipe.then(self.Normalised)

        if forms:
            last = self.STAGES.index(self.Rounded)
            for part, form in ((normaliser, forms[last - 1]), (rounder, forms[last])):
                m.d.comb += [part.half.eq(form.half), part.binary16.eq(form.binary16)]
        for name in ("top", "rest", "sign", "exponent"):
            m.d.comb += getattr(rounder, name).eq(getattr(normaliser, name))
        for name in ("negative", "nan", "infinite"):
            m.d.comb += getattr(rounder, name).eq(getattr(normalised, name))
        total = normalised.total
        rounded = pipe.then(
            self.Rounded,
            low=Mux(normalised.window | normalised.whole, total[:32], rounder.value),
            high=Mux(normalised.window, total[32:], 0),
            poison=normalised.window & normalised.nan,
            result=Mux(normalised.whole, total[:32], rounder.value),
        )
        m.d.comb += [self.sum.eq(Cat(rounded.low, rounded.high, rounded.poison)), self.result.eq(rounded.result)]
        return m

    def _forms(self, m) -> list:
        """Return the form of the elements to which the sum is rounded, now and after each step."""
        now = Signal(self.Form, name="form")
        m.d.comb += [now.half.eq(is_half(self.format)), now.binary16.eq(is_binary16(self.format))]
        forms = [now]
        for step in range(len(self.STAGES)):
            forms.append(Signal(self.Form, name=f"form_{step}", reset_less=True))
            m.d.sync += forms[-1].eq(forms[-2])
        return forms

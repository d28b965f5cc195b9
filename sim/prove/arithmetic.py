"""The arithmetic of `window64`: terms and sums are rounded as SMT-LIB's theory of floating-point numbers defines it."""

from functools import partial
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

import hw.numeric.lane
import hw.numeric.window64
from hw.numeric.half import BIAS_DIFFERENCE, narrowed
from iswitch.wire import Format
from iswitch.wire.formats import FRACTION_MAX, FRACTION_MIN
from sim.prove.harness import Harness, after
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

_BIAS_SHIFT = 189
"""The `ceiling` of a `Normaliser` whose sums have a last bit worth 1: 127 + 62."""
_EXACT = """
(declare-const sign (_ BitVec 1))
(declare-const exponent (_ BitVec 15))
(declare-const mantissa (_ BitVec 112))
(define-fun scaled ((by (_ BitVec 15))) Float128
    (fp sign (ite (= exponent (_ bv0 15)) exponent (bvadd exponent by)) mantissa))
"""
"""A number of 128 bits, which holds every term and every sum exactly, and that number times a power of two."""


class SumRounder(Component):
    """A `Normaliser` and the `Rounder` behind it, for binary32 numbers or for elements of a format of two bytes."""

    def __init__(self, part: Any, half: Format | None):
        self._part, self._half = part, half
        super().__init__({"total": In(64), "ceiling": In(9), "number": Out(32 if half is None else 16)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.normaliser = normaliser = self._part.Normaliser(half_width=self._half is not None)
        m.submodules.rounder = rounder = self._part.Rounder(half_width=self._half is not None)
        m.d.comb += [normaliser.total.eq(self.total), normaliser.ceiling.eq(self.ceiling)]
        m.d.comb += [
            getattr(rounder, name).eq(getattr(normaliser, name)) for name in ("top", "rest", "sign", "exponent")
        ]
        if self._half is None:
            m.d.comb += self.number.eq(rounder.value)
            return m
        is_binary16 = self._half is Format.FP16
        for stage in (normaliser, rounder):
            m.d.comb += [stage.half.eq(1), stage.binary16.eq(is_binary16)]
        m.d.comb += self.number.eq(narrowed(rounder.value, binary16=Const(is_binary16), as_is=Const(0)))
        return m


def constants(h: Harness, **widths: int) -> dict[str, Signal]:
    """Drive inputs of the component with values that stay."""
    made = {name: h.constant(width, name) for name, width in widths.items()}
    h.m.d.comb += [getattr(h.dut, name).eq(value) for name, value in made.items()]
    return made


def rounds_sums(part: Any, *, half: Format | None) -> Harness:
    """Compare the rounded sum with `expected`, which the reference defines."""
    h = Harness(dut := SumRounder(part, half))
    constants(h, total=64, ceiling=9)
    expected = h.constant(len(dut.number), "expected")
    settled = after(h, part.Normaliser.LATENCY)
    h.require(~settled | (dut.number == expected))
    exponent = {None: slice(23, 31), Format.FP16: slice(10, 15), Format.BF16: slice(7, 15)}[half]
    h.reach(settled & dut.number[exponent].all())
    h.reach(settled & dut.number[-1] & ~dut.number[exponent].any() & dut.number[: exponent.start].any())
    return h


_TOTAL = (
    _EXACT
    + """
(assert (= (fp sign exponent mantissa) ((_ to_fp 15 113) RNE {total})))
(define-fun window () (_ BitVec 15) ((_ zero_extend 6) {ceiling}))
"""
)
TO_BINARY32 = f"""
(assert (= ((_ to_fp 8 24) {{expected}}) ((_ to_fp 8 24) RNE (scaled (bvsub window (_ bv{_BIAS_SHIFT} 15))))))
"""
TO_BINARY16 = f"""
(assert (= ((_ to_fp 5 11) {{expected}})
           ((_ to_fp 5 11) RNE (scaled (bvsub window (_ bv{_BIAS_SHIFT - BIAS_DIFFERENCE} 15))))))
"""
# The solver has no numbers of this format. So the reference rounds to the upper half of a float32 that is cut off.
TO_BFLOAT16 = f"""
(define-fun exact () Float128 (scaled (bvsub window (_ bv{_BIAS_SHIFT} 15))))
(declare-const cut (_ BitVec 32))
(assert (= ((_ to_fp 8 24) cut) ((_ to_fp 8 24) RTZ exact)))
(define-fun inexact () Bool (not (= ((_ to_fp 15 113) RNE ((_ to_fp 8 24) cut)) exact)))
(define-fun below () Bool (or inexact (not (= ((_ extract 14 0) cut) (_ bv0 15)))))
(define-fun up () Bool (and (= ((_ extract 15 15) cut) #b1) (or below (= ((_ extract 16 16) cut) #b1))))
(assert (= {{expected}} (bvadd ((_ extract 31 16) cut) (ite up (_ bv1 16) (_ bv0 16)))))
"""
OF_TWO_BYTES = (("guard & (sticky | odd)", "guard"), ("rest = rest | skipped[skip]", "rest = rest"))
ROUNDINGS: tuple[tuple[str, Format | None, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "float32",
        None,
        TO_BINARY32,
        (
            ("guard & (sticky | odd)", "guard"),
            ("carry = self.sign & ~sticky", "carry = self.sign"),
            ("rest = middle.rest | middle.value[:3].any()", "rest = middle.rest"),
            ("exponent[8] | exponent[1:8].all()", "exponent[8]"),
        ),
    ),
    ("binary16 number", Format.FP16, TO_BINARY16, OF_TWO_BYTES),
    ("bfloat16 number", Format.BF16, TO_BFLOAT16, OF_TWO_BYTES),
)
"""Numbers to which sums are rounded: name, format of two bytes, reference and mutants."""


def adds_integers(part: Any) -> Harness:
    """Compare the stored sum of int32 elements with Amaranth's own addition."""
    h = Harness(dut := part.Lane())
    inputs = constants(h, operand=32, stored=65, include=1, first=1)
    h.m.d.comb += [dut.format.eq(Format.INT32), dut.valid.eq(1), dut.wide.eq(0)]
    settled = after(h, part.Lane.WRITE_AT)
    before = Mux(inputs["first"], 0, inputs["stored"][:32])
    total = (before + Mux(inputs["include"], inputs["operand"], 0))[:32]
    h.require(~settled | ((dut.sum == total) & (dut.result == total)))
    h.reach(settled & dut.sum[31])
    return h


def adds_terms(part: Any) -> Harness:
    """Compare the stored sum of a lane with `expected`, which the reference defines."""
    h = Harness(dut := part.Lane())
    constants(h, operand=32, stored=65, fraction=9, limit=8, include=1, first=1)
    h.m.d.comb += [dut.format.eq(Format.WINDOW64), dut.valid.eq(1), dut.wide.eq(0)]
    expected = h.constant(65, "expected")
    settled = after(h, part.Lane.WRITE_AT)
    h.require(~settled | (dut.sum == expected))
    h.reach(settled & dut.sum[64] & ~dut.stored[64])
    h.reach(settled & ~dut.sum[64] & dut.sum[63] & ~dut.stored[63] & ~dut.first)
    return h


SUM_OF_TERM = (
    _EXACT
    + f"""
(define-fun fraction () (_ BitVec 15) ((_ sign_extend 6) {{fraction}}))
(assert (and (bvsge fraction (bvneg (_ bv{-FRACTION_MIN} 15))) (bvsle fraction (_ bv{FRACTION_MAX} 15))))
(define-fun limit () (_ BitVec 15) (bvsub (_ bv185 15) fraction))
(assert (= ((_ zero_extend 7) {{limit}}) (ite (bvsgt limit (_ bv255 15)) (_ bv255 15) limit)))
(define-fun rejected () Bool (bvuge ((_ extract 30 23) {{operand}}) {{limit}}))
(assert (= (fp sign exponent mantissa)
           ((_ to_fp 15 113) RNE (ite rejected ((_ to_fp 8 24) (_ bv0 32)) ((_ to_fp 8 24) {{operand}})))))
(define-fun term () (_ BitVec 64)
    (ite (and {{include}} (not rejected)) ((_ fp.to_sbv 64) RNE (scaled fraction)) (_ bv0 64)))
(define-fun before () (_ BitVec 64) (ite {{first}} (_ bv0 64) ((_ extract 63 0) {{stored}})))
(assert (= ((_ extract 63 0) {{expected}}) (bvadd before term)))
(assert (= (= ((_ extract 64 64) {{expected}}) #b1)
           (or (and (not {{first}}) (= ((_ extract 64 64) {{stored}}) #b1)) (and {{include}} rejected))))
"""
)

PROOFS = [
    *(
        Proof(
            law=f"a sum is rounded to the nearest {name}, ties to even, whatever the sum and its window are",
            part=hw.numeric.window64,
            harness=partial(rounds_sums, half=half),
            covers_all=True,
            reference=_TOTAL + reference,
            depth=hw.numeric.window64.Normaliser.LATENCY + 3,
            mutants=mutants,
        )
        for name, half, reference, mutants in ROUNDINGS
    ),
    Proof(
        law="a lane adds int32 elements modulo 2^32",
        part=hw.numeric.lane,
        harness=adds_integers,
        depth=hw.numeric.lane.Lane.WRITE_AT + 3,
        covers_all=True,
        mutants=(
            ("result=Mux(normalised.whole, total[:32], rounder.value)", "result=rounder.value"),
            ("high=Mux(normalised.window, total[32:], 0)", "high=total[32:]"),
        ),
    ),
    Proof(
        law="a lane adds an element times 2^F, rounded to an integer, to the sum, and rejects one that is out of range",
        part=hw.numeric.lane,
        harness=adds_terms,
        covers_all=True,
        reference=SUM_OF_TERM,
        depth=hw.numeric.lane.Lane.WRITE_AT + 3,
        mutants=(
            ("aligner.guard & (aligner.sticky | aligner.magnitude[0])", "aligner.guard"),
            ("(round_up ^ aligned.subtract)", "round_up"),
            ("self.stored[64] & ~entered.first | locator.rejects", "self.stored[64] & ~entered.first"),
        ),
    ),
]

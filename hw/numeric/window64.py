"""float32 numbers in a window of 64 bits: located, aligned, normalised and rounded.

A window is given by its `origin`, the biased exponent of a number that needs no shift. The mantissa of such a number,
hidden bit on top, is as high as the sum of 32 terms allows.

    | 63 | 62  58 | 57              34 | 33               0 |
    |sign|  room  | 1 . mantissa       | 0                  |    biased exponent = origin, distance 0
    |sign|  room  |      | 1 . mantissa       | 0           |    biased exponent = origin - distance

Bit 0 is worth 2^(origin - 184). In `window64` that is 2^-F, so the origin is 184 - F for all elements of a job. In
`fp32` every pair of operands has its own window (`hw/numeric/fp32.py`), and everything else is shared.
"""

import itertools

from amaranth.hdl import Array, Cat, Const, Module, Mux, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hw.stream.stages import Stages, once
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS

__all__ = [
    "BOTTOM",
    "INFINITY",
    "MAGNITUDE_BITS",
    "MANTISSA_BITS",
    "NAN",
    "ORIGIN",
    "ROOM_BITS",
    "Aligner",
    "Locator",
    "Normaliser",
    "Rounder",
]

MAGNITUDE_BITS = 58
"""Bits of the magnitude of one term."""
ROOM_BITS = 5
"""Bits between a term and the sign, so that the sum of 32 terms cannot overflow."""
MANTISSA_BITS = 24
BOTTOM = MAGNITUDE_BITS - MANTISSA_BITS
"""Distance at which a mantissa's last bit is bit 0 of the window."""
ORIGIN = 127 + MANTISSA_BITS - 1 + BOTTOM
"""Origin of the window whose bit 0 is worth 1 (F = 0)."""
TOP_BITS = 28
"""Bits of a normalised sum of which each counts."""
GUARD_AT = {
    None: TOP_BITS - MANTISSA_BITS - 1,
    **{
        number: TOP_BITS - (8 * known.element.itemsize - known.exponent.stop + known.exponent.start) - 1
        for number, known in FORMATS.items()
        if known.is_half_width
    },
}
"""Place of the guard bit in a normalised sum that is rounded to a binary32 number (None), or to a half-width one."""
INFINITY = 0xFF << 23
NAN = 0x7FC00000


class Locator(wiring.Component):
    """Finds the place of an operand in the job's window, or replaces the operand by a zero.

    `window`, `fit`, `whole`: the format is window64, fp32, int32. The other inputs are those of `Lane`. `addend` is the
    operand, or a zero if it is not included or rejected; `hidden` is its hidden bit, `distance` its distance from
    `origin`. `rejects`: an included window64 operand is out of range. `counts`: an included one that is not 0 is in
    range. The zero in place of an fp32 operand is -0, because x + -0 is x for every x; with `first` it is +0, the sum
    of no terms.

    Latency `LATENCY`, one operand per cycle, never stalls.
    """

    class Read(data.Struct):
        window: 1
        fit: 1
        whole: 1
        first: 1
        operand: 32
        hidden: 1
        nonzero: 1
        accepts: 1
        rejects: 1
        valid: 1
        origin: 9

    class Located(data.Struct):
        addend: 32
        hidden: 1
        distance: 6
        origin: 9
        rejects: 1
        counts: 1

    STAGES = (Read, Located)
    LATENCY = len(STAGES)

    window: In(1)
    fit: In(1)
    whole: In(1)
    fraction: In(signed(9))
    limit: In(8)
    operand: In(32)
    include: In(1)
    first: In(1)
    valid: In(1)
    addend: Out(32)
    hidden: Out(1)
    distance: Out(6)
    origin: Out(9)
    rejects: Out(1)
    counts: Out(1)

    def elaborate(self, platform):
        m = Module()
        pipe = Stages(m, self.STAGES)
        outside = once(m, "outside", self.window & (self.operand[23:31] >= self.limit))
        read = pipe.then(
            self.Read,
            window=self.window,
            fit=self.fit,
            whole=self.whole,
            first=self.first,
            operand=self.operand,
            hidden=self.operand[23:31].any(),
            nonzero=self.operand[:31].any(),
            accepts=self.include & ~outside,
            rejects=self.include & outside,
            valid=self.valid,
            origin=(ORIGIN - self.fraction)[:9],
        )

        # A subnormal has the exponent of the least normal number, 1. An accepted exponent is never above the origin.
        distance = once(m, "difference", (read.origin - (read.operand[23:31] | ~read.hidden))[:9])
        located = pipe.then(
            self.Located,
            addend=Mux(read.accepts, read.operand, Cat(Const(0, 31), read.fit & ~read.first)),
            hidden=read.accepts & read.hidden,
            distance=Mux(read.whole, BOTTOM, Mux(distance[6:].any(), 63, distance[:6])),
            counts=read.valid & read.window & read.accepts & read.nonzero,
        )
        for name in ("addend", "hidden", "distance", "origin", "rejects", "counts"):
            m.d.comb += getattr(self, name).eq(getattr(located, name))
        return m


class Aligner(wiring.Component):
    """Shifts a term to its place in the window.

    `guard` is the first bit that is shifted out, `sticky` the or of all bits after it, as IEEE 754 rounding needs them.
    A term has 24 bits; at distance BOTTOM, where nothing is shifted, 32 (an int32). From distance 59 on, a term is
    below half of bit 0. Latency `LATENCY`, one term per cycle, never stalls.

    First by `distance mod 16`, losing nothing, then by one of four constants:

        fine             |46             15|14     0|    term x 2^(15 - distance mod 16)
        0: << 19   |57               19|0000000000000|
        1: << 3              |57 ... 49|             3|000|
        2: >> 13                          |33       0| g ssss |    g = fine[12]
        3: >> 29                               |17  0| g ssss    ssss |    g = fine[28]
    """

    class Aligned(data.Struct):
        magnitude: MAGNITUDE_BITS
        guard: 1
        sticky: 1

    STAGES = (Aligned,)
    LATENCY = len(STAGES)

    term: In(32)
    distance: In(6)
    magnitude: Out(MAGNITUDE_BITS)
    guard: Out(1)
    sticky: Out(1)

    def elaborate(self, platform):
        m = Module()
        fine = once(m, "fine", self.term << ~self.distance[:4])
        coarse = self.distance[4:]
        shifted = [Cat(Const(0, 19), fine)[:MAGNITUDE_BITS], Cat(Const(0, 3), fine), fine[13:], fine[29:]]
        upper = Mux(coarse[0], shifted[1], shifted[0])
        lower = Mux(coarse[0], shifted[3], shifted[2])
        further = fine[12:28].any()
        aligned = Stages(m, self.STAGES).then(
            self.Aligned,
            magnitude=Mux(coarse[1], lower, upper),
            guard=coarse[1] & Mux(coarse[0], fine[28], fine[12]),
            sticky=coarse[1] & (fine[:12].any() | coarse[0] & further),
        )
        for name in ("magnitude", "guard", "sticky"):
            m.d.comb += getattr(self, name).eq(getattr(aligned, name))
        return m


class Normaliser(wiring.Component):
    """Shifts a sum until its first significant bit is on top, or the exponent is that of a subnormal.

    `total` is in two's complement and is not negated: a bit is significant if it differs from the sign. So -2^n is
    shifted one place further than 2^n, which the rounding corrects. `exponent` is a float32's exponent field before the
    hidden bit is added to it, origin + ROOM_BITS - places, and not below 0, where subnormals begin. The place of a zero
    does not matter.

    `top` are the upper 28 bits, `rest` is the or of all bits below. Latency `LATENCY`, one sum per cycle, never stalls.

    Each of three steps skips up to three groups of 16, 4 and 1 bits that are all equal to the sign:

        |63  48|47  32|31  16|15   0|    s..s s..s s..s x..x    skip 3
        |63  60|59  56|55  52|51          ssss xxxx             skip 1, if one of the x is unlike s
        |63|62|61|60                      s s x                 skip 2

    Only bits that can still reach the top are shifted: 31 in the last step, 43 in the step before. `rest` is the or of
    the others. With `half`, where the sum is rounded to a bfloat16 or, with `binary16`, to a binary16 number, `rest` is
    the or of all bits below the guard bit, which `Rounder` shows. Both are read LATENCY - 1 cycles after `total`.

    Parameters
    ----------
    half_width : bool
        Whether there are `half` and `binary16`.
    """

    class Coarse(data.Struct):
        value: 43
        rest: 1
        sign: 1
        exponent: 9
        room: 4

    class Middle(data.Struct):
        value: 31
        rest: 1
        sign: 1
        exponent: 9
        room: 2

    class Normalised(data.Struct):
        top: 28
        rest: 1
        sign: 1
        exponent: 9

    STAGES = (Coarse, Middle, Normalised)
    LATENCY = len(STAGES)

    def __init__(self, *, half_width: bool = False):
        self.half_width = half_width
        super().__init__(
            {
                "total": In(64),
                "ceiling": In(9),  # origin + ROOM_BITS
                **({"half": In(1), "binary16": In(1)} if half_width else {}),
                "top": Out(28),
                "rest": Out(1),
                "sign": Out(1),
                "exponent": Out(9),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pipe = Stages(m, self.STAGES)

        def step(value, sign, exponent, room, group, kept):
            """Return how many groups are skipped, and the upper `kept` bits of the value, the exponent and the room
            after that, and the or of the bits below. `room`: how many more bits may be skipped."""
            width = len(value)
            unlike = once(m, f"unlike{group}", Mux(sign, ~value, value))
            found = [unlike[width - group * (k + 1) : width - group * k].any() for k in range(3)]
            empty = once(m, f"empty{group}", Mux(found[0], 0, Mux(found[1], 1, Mux(found[2], 2, 3))))
            has_room = once(m, f"has_room{group}", empty < room[-2:])
            skip = once(m, f"skip{group}", Mux(has_room, empty, room[-2:]))
            near = Mux(skip[0], Cat(Const(0, group), value[: width - group]), value)
            left = Mux(skip[1], Cat(Const(0, 2 * group), near[: width - 2 * group]), near)
            ends = [max(width - kept - group * k, 0) for k in range(4)]
            rest = Cat(
                value[below:end].any() & (skip <= k) for k, (end, below) in enumerate(itertools.pairwise(ends))
            ).any()
            places = Cat(Const(0, ceil_log2(group)), skip)
            return skip, {
                "value": left[width - kept :],
                "rest": rest,
                "exponent": (exponent - places)[:9],
                "room": room[:-2] | has_room.replicate(len(room) - 2),
            }

        sign = self.total[63]
        room = once(m, "room", Mux(self.ceiling[6:].any(), 63, self.ceiling[:6]))
        coarse = pipe.then(self.Coarse, sign=sign, **step(self.total, sign, self.ceiling, room, 16, 43)[1])
        _, after = step(coarse.value, coarse.sign, coarse.exponent, coarse.room, 4, 31)
        middle = pipe.then(self.Middle, **after | {"rest": coarse.rest | after["rest"]})
        skip, fine = step(middle.value, middle.sign, middle.exponent, middle.room, 1, 28)
        # The three lowest bits are sticky bits wherever they end.
        rest = middle.rest | middle.value[:3].any()
        if self.half_width:
            # Bits of `top` before they are shifted, for each number of places by which they may be.
            skipped = Array(
                Cat(
                    *(
                        applies & middle.value[low + 3 - places : guard + 3 - places].any()
                        for applies, low, guard in (
                            (self.half, 3, GUARD_AT[Format.FP16]),
                            (self.half & ~self.binary16, GUARD_AT[Format.FP16], GUARD_AT[Format.BF16]),
                        )
                    )
                ).any()
                for places in range(4)
            )
            rest = rest | skipped[skip]
        normalised = pipe.then(self.Normalised, top=fine["value"], rest=rest, exponent=fine["exponent"])
        for name in ("top", "rest", "sign", "exponent"):
            m.d.comb += getattr(self, name).eq(getattr(normalised, name))
        return m


class Rounder(wiring.Component):
    """Rounds a normalised sum to the nearest float32, ties to even. Combinational.

    Exponent and mantissa are one number of 31 bits. So a carry out of the mantissa raises the exponent, the largest
    number becomes infinity, and subnormals need no case of their own.

        top   |27                   4| 3 | 2   0|  rest
              | 1 . mantissa         | g |   sticky    |

    The magnitude of a negative sum is its complement plus 1. That 1 carries into the guard bit only if all bits below
    are 0. `negative` inverts the sign, and turns zero into -0. `nan` overrides `infinite`, which overrides the number.

    With `half` the sum is rounded to a bfloat16 number, with `binary16` as well to a binary16 one. The number has the
    place of the upper bits of a binary32 number: sign and exponent stand above the hidden bit, and the bits below the
    mantissa have any value. Of a binary16 exponent count the lower 5 bits (`hw.numeric.half.narrowed`).

    Parameters
    ----------
    half_width : bool
        Whether there are `half` and `binary16`.
    """

    def __init__(self, *, half_width: bool = False):
        self.half_width = half_width
        super().__init__(
            {
                "top": In(TOP_BITS),
                "rest": In(1),
                "sign": In(1),
                "exponent": In(9),
                "negative": In(1),
                "nan": In(1),
                "infinite": In(1),
                **({"half": In(1), "binary16": In(1)} if half_width else {}),
                "value": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        mantissa = once(m, "mantissa", Mux(self.sign, ~self.top[4:], self.top[4:]))
        if self.half_width:
            is_binary16, is_bfloat16 = self.half & self.binary16, self.half & ~self.binary16
            chosen = lambda above: Mux(
                self.half,
                Mux(self.binary16, self.top[GUARD_AT[Format.FP16] + above], self.top[GUARD_AT[Format.BF16] + above]),
                self.top[GUARD_AT[None] + above],
            )
            guard, odd = once(m, "guard", chosen(0) ^ self.sign), once(m, "odd", chosen(1) ^ self.sign)
        else:
            guard, odd = once(m, "guard", self.top[GUARD_AT[None]] ^ self.sign), mantissa[0]
        sticky = once(m, "sticky", self.top[:3].any() | self.rest)
        carry = self.sign & ~sticky
        round_up = Mux(carry, guard | odd, guard & (sticky | odd))
        # Without a hidden bit the sum is a zero, a subnormal (whose exponent is 0 already), or -1 before the carry.
        # From exponent 254 on, before the hidden bit is added, the number is an infinity, or from 30 on in binary16.
        exponent = once(m, "kept", Mux(mantissa[-1] | self.sign, self.exponent, 0))
        addend, infinite = Cat(Const(0, 23), exponent[:8]), self.infinite | exponent[8] | exponent[1:8].all()
        if self.half_width:
            # The last bit of a shorter mantissa is raised where the exponent has zeros.
            ups = {Format.FP16: is_binary16, Format.BF16: is_bfloat16}
            ups = {number: once(m, f"ups_{number.name.lower()}", round_up & holds) for number, holds in ups.items()}
            for number, up in ups.items():
                addend |= up << GUARD_AT[number] - GUARD_AT[None]
            round_up &= ~self.half
            infinite = Mux(is_binary16, self.infinite | exponent[5:].any() | exponent[1:5].all(), infinite)
        rounded = (addend + mantissa + round_up)[:31]
        with m.If(self.nan):
            m.d.comb += self.value.eq(NAN)
        with m.Else():
            m.d.comb += self.value.eq(Cat(Mux(infinite, INFINITY, rounded), self.sign ^ self.negative))
        return m

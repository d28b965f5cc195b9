"""float32 numbers in a window of 64 bits: into it, along it, and out of it again.

A window is known by its `origin`, the biased exponent of a number that needs no shift: its mantissa, hidden bit on
top, lies as high as 32 terms may.

    | 63 | 62  58 | 57              34 | 33               0 |
    |sign|  room  | 1 . mantissa       | 0                  |    biased exponent = origin, distance 0
    |sign|  room  |      | 1 . mantissa       | 0           |    biased exponent = origin - distance

Bit 0 is worth 2^(origin - 184). In `window64` that is 2^-F, hence origin = 184 - F, the same for the whole job. In
`fp32` every pair of operands has a window of its own (`hw/numeric/fp32.py`), and all else is shared.
"""

import itertools

from amaranth.hdl import Cat, Const, Module, Mux, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hw.stream.stages import Stages, once

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
"""Of one term."""
ROOM_BITS = 5
"""Between a term and the sign, so that the sum of 32 terms cannot overflow."""
MANTISSA_BITS = 24
BOTTOM = MAGNITUDE_BITS - MANTISSA_BITS
"""Distance at which a mantissa's last bit is bit 0 of the window."""
ORIGIN = 127 + MANTISSA_BITS - 1 + BOTTOM
"""Of the window whose bit 0 is worth 1 (F = 0)."""
INFINITY = 0xFF << 23
NAN = 0x7FC00000


class Locator(wiring.Component):
    """Finds where an operand lies in the job's window, and what is added in its place if it must not be.

    `window`, `fit`, `whole`: the format is window64, fp32, int32. Ports as in `Lane`.
    `LATENCY` cycles later: `addend` (a zero if the operand is not included or rejected), its hidden bit, its distance
    from `origin`. `rejects`: an included window64 operand is out of range; `counts`: an included one that is not 0 is
    in range. A zero in place of an fp32 operand is -0, to which every x is added as x; at a first it is +0, what the
    sum of nobody is. One operand per cycle; never stalls.
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
    """Shifts a term to its place in the window; what falls out below is told as IEEE-754 rounding needs it.

    `magnitude`, `guard` (the first bit lost) and `sticky` (any bit after it) come `LATENCY` cycle later. A term has 24
    bits, but at distance BOTTOM, where nothing moves, 32 (an int32). From distance 59 on a term is below half of
    bit 0. One term per cycle; never stalls.

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
    """Shifts a sum until its first significant bit is on top, or until it is as far as a subnormal may go.

    `total` is in two's complement, and is shifted as it is: the bits that count are those unlike the sign. Thus -2^n
    goes one place further than 2^n, and the rounding puts that right. `exponent` is what a float32's exponent field
    holds if the hidden bit is then added to it: origin + ROOM_BITS - places. It does not go below 0, that is where
    subnormals begin. A zero ends wherever.

    `top` are the upper 28 bits, `rest` whether any below is set. `LATENCY` cycles; one sum per cycle; never stalls.

    Each of three steps skips up to three groups that hold nothing but sign, of 16, then 4, then 1 bits:

        |63  48|47  32|31  16|15   0|    s..s s..s s..s x..x    skip 3
        |63  60|59  56|55  52|51          ssss xxxx             skip 1, if one of the x is unlike s
        |63|62|61|60                      s s x                 skip 2

    Only what may yet come to the top is shifted, 31 bits in the last step and 43 in the one before; of what may not,
    `rest` keeps whether any of it is set.
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

    total: In(64)
    ceiling: In(9)
    """origin + ROOM_BITS"""
    top: Out(28)
    rest: Out(1)
    sign: Out(1)
    exponent: Out(9)

    def elaborate(self, platform):
        m = Module()
        pipe = Stages(m, self.STAGES)

        def step(value, sign, exponent, room, group, kept):
            """The upper `kept` bits of the value, exponent and room after skipping groups, and whether any bit below is
            set; `room` is how many bits may still be skipped."""
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
            return {
                "value": left[width - kept :],
                "rest": rest,
                "exponent": (exponent - places)[:9],
                "room": room[:-2] | has_room.replicate(len(room) - 2),
            }

        sign = self.total[63]
        room = once(m, "room", Mux(self.ceiling[6:].any(), 63, self.ceiling[:6]))
        coarse = pipe.then(self.Coarse, sign=sign, **step(self.total, sign, self.ceiling, room, 16, 43))
        after = step(coarse.value, coarse.sign, coarse.exponent, coarse.room, 4, 31)
        middle = pipe.then(self.Middle, **after | {"rest": coarse.rest | after["rest"]})
        fine = step(middle.value, middle.sign, middle.exponent, middle.room, 1, 28)
        # The three lowest bits are no more than sticky, wherever they end.
        normalised = pipe.then(
            self.Normalised, top=fine["value"], rest=middle.rest | middle.value[:3].any(), exponent=fine["exponent"]
        )
        for name in ("top", "rest", "sign", "exponent"):
            m.d.comb += getattr(self, name).eq(getattr(normalised, name))
        return m


class Rounder(wiring.Component):
    """Rounds a normalised sum to the nearest float32, ties to even. Combinational.

    Subnormals come out of the same addition as all others: exponent and mantissa are one number of 31 bits, so that a
    carry out of the mantissa raises the exponent, and out of the largest number gives infinity.

        top   |27                   4| 3 | 2   0|  rest
              | 1 . mantissa         | g |   sticky    |

    A negative sum's magnitude is its complement plus 1; that 1 runs through to the guard bit only if all below is 0.
    `negative` turns the sign over; a zero is then -0. `nan` before `infinite` before the number.
    """

    top: In(28)
    rest: In(1)
    sign: In(1)
    exponent: In(9)
    negative: In(1)
    nan: In(1)
    infinite: In(1)
    value: Out(32)

    def elaborate(self, platform):
        m = Module()
        mantissa = once(m, "mantissa", Mux(self.sign, ~self.top[4:], self.top[4:]))
        guard = once(m, "guard", self.top[3] ^ self.sign)
        sticky = once(m, "sticky", self.top[:3].any() | self.rest)
        carry = self.sign & ~sticky
        round_up = Mux(carry, guard | mantissa[0], guard & (sticky | mantissa[0]))
        # Only a zero and a subnormal, whose exponent is 0 anyhow, have no hidden bit; or -1, before the carry. From 254
        # on it is an infinity.
        exponent = once(m, "kept", Mux(mantissa[-1] | self.sign, self.exponent, 0))
        rounded = (Cat(Const(0, 23), exponent[:8]) + mantissa + round_up)[:31]
        with m.If(self.nan):
            m.d.comb += self.value.eq(NAN)
        with m.Else():
            m.d.comb += self.value.eq(
                Cat(
                    Mux(self.infinite | exponent[8] | exponent[1:8].all(), INFINITY, rounded), self.sign ^ self.negative
                )
            )
        return m

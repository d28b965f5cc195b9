"""Elements of two bytes: widened to binary32 in front of the lanes, and taken from the lanes' rounded sums behind
them."""

from amaranth.hdl import Cat, Const, Mux, Value

from hw.stream.reduction import reduce_tree
from hw.stream.stages import once

__all__ = ["BIAS_DIFFERENCE", "narrowed", "widened"]

FP16_MANTISSA_BITS, MANTISSA_BITS = 10, 23
"""Bits of a mantissa without its hidden bit, of binary16 and binary32."""
BIAS_DIFFERENCE = 127 - 15
"""How much larger the bias of a binary32 exponent is than that of a binary16 exponent."""


def widened(m, name: str, half: Value, *, binary16: Value, as_is: Value) -> Value:
    """Return the binary32 number equal to an element, or with `as_is` the element's bits below zeros.

    The element is a binary16 number if `binary16`, else a bfloat16 number, which is the upper half of the binary32 one.
    A binary16 subnormal becomes a normal number. A NaN stays a NaN. `name` is part of the names of signals in `m`.
    """
    fraction, exponent = half[:FP16_MANTISSA_BITS], half[FP16_MANTISSA_BITS:-1]
    # 2^-24 times an integer of ten bits whose first one is at `place` is 2^(place - 24) times 1.xxx.
    places = range(FP16_MANTISSA_BITS)
    leads = [once(m, f"{name}_leads_{place}", fraction[place] & ~fraction[place + 1 :].any()) for place in places]
    subnormal = reduce_tree(
        lambda one, other: one | other,
        [
            Mux(
                leads[place],
                Cat((fraction << (FP16_MANTISSA_BITS - place))[:FP16_MANTISSA_BITS], Const(place + 127 - 24, 8)),
                0,
            )
            for place in places
        ],
    )
    # 112 is 0b0111_0000, so adding it changes the upper bits only.
    top = exponent[4]
    normal = Cat(fraction, exponent[:4], Mux(exponent.all(), 0b1111, Mux(top, 0b1000, 0b0111)))
    magnitude = Mux(exponent.any(), normal, subnormal)
    number = Cat(Const(0, MANTISSA_BITS - FP16_MANTISSA_BITS), magnitude, half[-1])
    return Mux(as_is, half, Mux(binary16, number, Cat(Const(0, len(half)), half)))[:32]


def narrowed(rounded: Value, *, binary16: Value, as_is: Value) -> Value:
    """Return the element of two bytes in what a lane has rounded for its format, or with `as_is` the lower half."""
    lowest = MANTISSA_BITS - FP16_MANTISSA_BITS
    number = Cat(rounded[lowest : lowest + 15], rounded[31])
    return Mux(as_is, rounded[:16], Mux(binary16, number, rounded[16:]))

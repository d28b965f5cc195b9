"""The high half of a product, as multipliers in FPGAs like it: a register behind each, and one addition a cycle."""

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["FRACTION_BITS", "LATENCY", "multiply_high"]

FRACTION_BITS = 64
LATENCY = 4
"""Cycles until it is there: the pieces' products, rows, pairs of rows, the whole."""
ROW_BITS = 16
"""Of the fraction, multiplied at a time; a DSP48E1 takes 17 bits without a sign by 24 (UG479, "Multiplier")."""
COLUMN_BITS = 24
PLACE_BITS = 2 * COLUMN_BITS
"""Between products of every other column, which are shorter and so stand side by side."""


def multiply_high(
    m: Module, fraction: Value, whole: Value, *, name: str, plus: Value | None = None, goes: Value | None = None
) -> Value:
    """floor(fraction * whole / 2^64) + plus modulo 2^max(64, bits of `whole`), `LATENCY` cycles later; a new one each
    cycle.

    `plus` is asked for 1 cycle after the others. While `goes` is 0 everything stands still.
    """
    goes = Const(1) if goes is None else goes
    columns = [whole[at : at + COLUMN_BITS] for at in range(0, len(whole), COLUMN_BITS)]

    def register(value: Value, what: str) -> Signal:
        held = Signal(len(value), name=f"{name}_{what}", reset_less=True)
        with m.If(goes):
            m.d.sync += held.eq(value)
        return held

    rows = []
    for row in range(FRACTION_BITS // ROW_BITS):
        piece = fraction.word_select(row, ROW_BITS)
        pieces = [register(piece * column, f"piece_{row}_{k}") for k, column in enumerate(columns)]
        even, odd = (Cat(one | Const(0, PLACE_BITS) for one in pieces[start::2]) for start in (0, 1))
        rows.append(even + (odd << COLUMN_BITS))
    # | row 3 |       , and above its 16 bits of overlap stands what is added to the whole
    # |   | row 2 |
    # |       | row 1 |
    # |           | row 0 |
    if plus is not None:
        rows[-1] = rows[-1] + (plus << ROW_BITS)
    kept = max(FRACTION_BITS, len(whole)) + ROW_BITS
    first, second, third, fourth = (register(value[:kept], f"row_{row}") for row, value in enumerate(rows))
    # What stands below the pair's own end cannot carry, since the other row has nothing there.
    low = register((first >> ROW_BITS) + second, "low")
    high = register((third + (fourth << ROW_BITS))[: kept + ROW_BITS], "high")
    return register(((low >> ROW_BITS) + high)[2 * ROW_BITS : kept + ROW_BITS], "whole")

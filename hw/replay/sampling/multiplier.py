"""The high half of a product, pipelined for the multipliers of FPGAs: a register behind each, one addition a cycle."""

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["FRACTION_BITS", "LATENCY", "multiply_high"]

FRACTION_BITS = 64
LATENCY = 4
"""Cycles from the factors to the product: products of pieces, rows, pairs of rows, the sum of the pairs."""
ROW_BITS = 16
"""Bits of the fraction in one piece. A DSP48E1 multiplies 17 unsigned bits by 24 (UG479, "Multiplier")."""
COLUMN_BITS = 24
PLACE_BITS = 2 * COLUMN_BITS
"""Distance of every other column's products in a row. They are shorter, so they stand side by side."""


def multiply_high(
    m: Module, fraction: Value, factor: Value, *, name: str, addend: Value | None = None, enable: Value | None = None
) -> Value:
    """Return floor(fraction * factor / 2^64) + addend modulo 2^max(64, bits of `factor`), `LATENCY` cycles later.

    One product in each cycle. `addend` is read 1 cycle after the factors. While `enable` is 0 all registers hold.
    """
    enable = Const(1) if enable is None else enable
    columns = [factor[at : at + COLUMN_BITS] for at in range(0, len(factor), COLUMN_BITS)]

    def register(value: Value, what: str) -> Signal:
        held = Signal(len(value), name=f"{name}_{what}", reset_less=True)
        with m.If(enable):
            m.d.sync += held.eq(value)
        return held

    rows = []
    for row in range(FRACTION_BITS // ROW_BITS):
        piece = fraction.word_select(row, ROW_BITS)
        pieces = [register(piece * column, f"piece_{row}_{k}") for k, column in enumerate(columns)]
        even, odd = (Cat(one | Const(0, PLACE_BITS) for one in pieces[start::2]) for start in (0, 1))
        rows.append(even + (odd << COLUMN_BITS))
    # | row 3 |         The addend is aligned with the product: 16 bits above the lowest bit of row 3.
    # |   | row 2 |
    # |       | row 1 |
    # |           | row 0 |
    if addend is not None:
        rows[-1] = rows[-1] + (addend << ROW_BITS)
    width = max(FRACTION_BITS, len(factor)) + ROW_BITS
    first, second, third, fourth = (register(value[:width], f"row_{row}") for row, value in enumerate(rows))
    # The lowest bits of a pair are those of its lower row alone, so they cannot carry.
    low = register((first >> ROW_BITS) + second, "low")
    high = register((third + (fourth << ROW_BITS))[: width + ROW_BITS], "high")
    return register(((low >> ROW_BITS) + high)[2 * ROW_BITS : width + ROW_BITS], "factor")

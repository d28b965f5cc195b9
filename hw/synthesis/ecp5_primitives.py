"""The ECP5 primitives to which Yosys maps (Lattice FPGA-TN-02205 and the simulation models of Yosys): which of them
begin, end and pass timing paths.

The rules are those of `hw.synthesis.primitives`: a LUT is a level, a carry chain one, however long, the select input of
a mux one, a read of a LUT memory one, a multiplier without registers three. But a CCU2C has the LUTs in front of its
carry chain inside, so an adder is one level and not two.
"""

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MULTIPLIER_LEVELS", "begins", "clock_pin", "ends", "kind", "passes"]

MULTIPLIER_LEVELS = 3
"""Levels of a MULT18X18D without registers."""
KINDS = {
    "lut": r"LUT4",
    "carry": r"CCU2C",
    "mux": r"PFUMX|L6MUX21",
    "register": r"TRELLIS_FF",
    "block": r"DP16KD",
    "lutram": r"TRELLIS_DPR16X4",
    "dsp": r"MULT18X18D",
    "none": r"\$scopeinfo|GSR",
}
SELECTS = {"PFUMX": "C0", "L6MUX21": "SD"}


def kind(primitive: str) -> str:
    """Return the kind of a primitive: lut, carry, mux, register, block, lutram, dsp or none. Raises ValueError for
    others."""
    for name, pattern in KINDS.items():
        if re.fullmatch(pattern, primitive):
            return name
    raise ValueError(f"cell must be one of the ECP5 primitives known here, not {primitive!r}")


def clock_pin(cell: dict[str, Any], pin: str) -> str | None:
    """Return the pin that clocks the path end at `pin`, or None if no path begins or ends there."""
    what = kind(cell["type"])
    if what == "block":  # CLKA with the pins of side A
        return f"CLK{found[1]}" if (found := re.search(r"([AB])\d*$", pin)) else None
    return {"register": "CLK", "lutram": "WCK"}.get(what)


def begins(cell: dict[str, Any], pin: str) -> int | None:
    """Return the levels at which paths begin at this output, or None if none begins."""
    return 0 if kind(cell["type"]) in ("register", "block", "lutram") else None


def ends(cell: dict[str, Any], pin: str) -> int | None:
    """Return the levels between this input and the register where its paths end, or None if there is no register."""
    what = kind(cell["type"])
    if what == "lutram":
        return None if pin in ("RAD", "WCK") else 0
    return 0 if what in ("register", "block") and not pin.startswith("CLK") else None


def passes(cell: dict[str, Any], pin: str, position: int) -> Iterator[tuple[str, int, int | str]]:
    """Return the inputs from which a path comes to bit `position` of this output without a register between: pin,
    levels, and bit. `CIN` costs no level if the carry comes from another carry cell."""
    what, pins = kind(cell["type"]), cell["connections"]
    inputs = [name for name in pins if cell["port_directions"][name] == "input"]
    if what == "carry":
        inputs = [name for name in inputs if name == "CIN" or pin != "S0" or name.endswith("0")]
        yield from ((name, 0 if name == "CIN" else 1, bit) for name in inputs for bit in pins[name])
    elif what in ("lut", "mux"):
        select = SELECTS.get(cell["type"])
        yield from ((name, 1 if what == "lut" or name == select else 0, bit) for name in inputs for bit in pins[name])
    elif what == "lutram":
        yield from (("RAD", 1, bit) for bit in pins["RAD"])
    elif what == "dsp":
        registers = [name for name in cell["parameters"] if name.startswith("REG_")]
        if any(cell["parameters"][name] != "NONE" for name in registers):
            raise ValueError("a MULT18X18D must have no registers of its own")
        yield from ((name, MULTIPLIER_LEVELS, bit) for name in inputs if name[0] in "AB" for bit in pins[name])

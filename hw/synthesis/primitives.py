"""The Xilinx primitives to which Yosys maps (7 series: UG953; UltraScale+: UG974): which of them begin, end and pass
timing paths, and their LUTs.

A cell is as in Yosys' write_json. No delays are known here; logic levels are those of `hw.synthesis.timing_paths`.
"""

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MEMORY_LUTS", "MULTIPLIER_LEVELS", "begins", "clock_pin", "ends", "kind", "passes", "resources"]

MEMORY_LUTS = {
    "RAM16X1S": 1,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
}
"""Memories made of LUTs, and their number of LUTs. Each is a memory of its own that shares LUTs with no other."""
SHIFTS = ("SRL16E", "SRLC16E", "SRLC32E")
MULTIPLIER_LEVELS = 3
"""Levels of a DSP48 between two registers that are not its own: about the delay of three LUTs and their routes."""

KINDS = {
    "lut": r"LUT[1-6]|LUT6_2|INV",
    "carry": r"CARRY[48]",
    "mux": r"MUXF[789]",
    "register": r"FD[CPRS]E(_1)?",
    "block": r"RAMB(18|36)E[12]|URAM288(_BASE)?",
    "lutram": "|".join(MEMORY_LUTS),
    "shift": "|".join(SHIFTS),
    "dsp": r"DSP48E[12]",
    "wire": r"BUFG|IBUF|OBUF",
    "none": r"\$scopeinfo",
}
CLOCK_PINS = {
    "register": {"C"},
    "lutram": {"WCLK"},
    "shift": {"CLK"},
    "dsp": {"CLK"},
    "block": {"CLK", "CLKARDCLK", "CLKBWRCLK"},
}
READ_ONLY = {"RAM32M": "ABC", "RAM64M": "ABC", "RAM32M16": "ABCDEFG", "RAM64M8": "ABCDEFG"}
"""The read-only ports among ADDRA, ADDRB, ...; the last port also writes."""
DSP_REGISTERS = {
    "A": "AREG",
    "B": "BREG",
    "C": "CREG",
    "D": "DREG",
    "CARRYIN": "CARRYINREG",
    "ALUMODE": "ALUMODEREG",
    "INMODE": "INMODEREG",
    "OPMODE": "OPMODEREG",
    "CARRYINSEL": "CARRYINSELREG",
}
DSP_CONTROLS = r"CE\w+|RST\w+"


def kind(primitive: str) -> str:
    """Return the kind of a primitive: lut, carry, mux, register, block, lutram, shift, dsp, wire or none. Raises
    ValueError for others, latches among them."""
    for name, pattern in KINDS.items():
        if re.fullmatch(pattern, primitive):
            return name
    raise ValueError(f"cell must be one of the Xilinx primitives known here, which no latch is, not {primitive!r}")


def clock_pin(cell: dict[str, Any], pin: str) -> str | None:
    """Return the pin that clocks the path end at `pin`, or None if no path begins or ends there. A true dual-port
    memory has a clock on each side."""
    pins = CLOCK_PINS.get(kind(cell["type"]), set()) & cell["connections"].keys()
    if len(pins) < 2:
        return next(iter(pins), None)
    simple = parameter(cell, "RAM_MODE", text="TDP") == "SDP"  # the other side writes all of it, UG473
    ours = (
        re.search(r"ARDADDR|ENARDEN|REGCEAREGCE|RSTRAMARSTRAM|RSTREGARSTREG|^DO", pin)
        if simple
        else re.search(
            r"^(CAS)?(ADDRARD|ADDREN?A|D[IO]\w*AD|DINA|DINPA|DOUTA|DOUTPA|DIP?AD|DOP?AD|WEA|ENA|REGCEA|RSTRAMA|RSTREGA|"
            r"CASDIMUXA|CASDOMUXA|\w*_A$)",
            pin,
        )
    )
    return "CLKARDCLK" if ours else "CLKBWRCLK"


def parameter(cell: dict[str, Any], name: str, *, text: str = "") -> Any:
    """Return a parameter as a number, or with `text`, its default, as a string. By the vendors' default a DSP48 has its
    registers."""
    value = cell["parameters"].get(name)
    if text:
        return text if value is None else value
    return 1 if value is None else int(value, 2) if isinstance(value, str) else int(value)


def begins(cell: dict[str, Any], pin: str) -> int | None:
    """Return the levels at which paths begin at this output, or None if none begins. The content of a LUT memory begins
    a path, too, but the path of its address is longer."""
    what = kind(cell["type"])
    if what == "dsp":
        if parameter(cell, "PREG"):
            return 0
        return (
            MULTIPLIER_LEVELS
            if any(parameter(cell, name) for name in ("AREG", "BREG", "CREG", "DREG", "MREG"))
            else None
        )
    return 0 if what in ("register", "block", "shift", "lutram") else None


def ends(cell: dict[str, Any], pin: str) -> int | None:
    """Return the levels between this input and the register where its paths end, or None if there is no register."""
    what = kind(cell["type"])
    if pin in CLOCK_PINS.get(what, ()):
        return None
    if what in ("register", "block"):
        return 0
    if what == "shift":
        return None if re.fullmatch(r"A\d?", pin) else 0
    if what == "lutram":
        alone = re.fullmatch(f"DPRA\\d*|ADDR[{READ_ONLY.get(cell['type'], '-')}]", pin)
        return None if alone else 0
    if what == "dsp":
        if re.fullmatch(DSP_CONTROLS, pin) or pin in DSP_REGISTERS and parameter(cell, DSP_REGISTERS[pin]):
            return 0
        if parameter(cell, "MREG") or parameter(cell, "PREG"):
            return MULTIPLIER_LEVELS
    return None


def passes(cell: dict[str, Any], pin: str, position: int) -> Iterator[tuple[str, int, int | str]]:
    """Return the inputs from which a path comes to bit `position` of this output without a register between: pin,
    levels, and bit. `CI` costs no level if the carry comes from another carry cell."""
    what, pins = kind(cell["type"]), cell["connections"]
    inputs = [name for name in pins if cell["port_directions"][name] == "input"]
    if what == "carry":
        for name in inputs:
            # UG474, figure 2-24: a sum has its own S, a carry its own S and DI.
            least = position + (0 if name == "DI" and pin == "O" else 1)
            bits = pins[name][:least] if name in ("S", "DI") else pins[name]
            yield from ((name, 0 if name == "CI" else 1, bit) for bit in bits)
    elif what in ("lut", "wire", "mux"):
        cost = {"lut": 1, "wire": 0, "mux": 0}[what]
        yield from ((name, 1 if what == "mux" and name == "S" else cost, bit) for name in inputs for bit in pins[name])
    elif what == "lutram":
        letter = pin[2:] if cell["type"] in READ_ONLY else ""
        address = f"ADDR{letter}" if letter else r"DPRA\d*" if pin == "DPO" else r"A\d*"
        yield from ((name, 1, bit) for name in inputs if re.fullmatch(address, name) for bit in pins[name])
    elif what == "shift" and pin != "Q31":
        yield from ((name, 1, bit) for name in inputs if re.fullmatch(r"A\d?", name) for bit in pins[name])
    elif what == "dsp" and not parameter(cell, "PREG") and not parameter(cell, "MREG"):
        yield from (
            (name, MULTIPLIER_LEVELS, bit)
            for name in inputs
            if name != "CLK" and ends(cell, name) is None
            for bit in pins[name]
        )


def resources(cells: dict[str, int]) -> dict[str, int]:
    """Return resources from cells by type: LUT (with those used as memory; an upper bound, since vendors' tools put two
    small ones into one), FF, RAMB36, RAMB18, URAM, DSP. Raises ValueError for unknown cells."""
    used = dict.fromkeys(("LUT", "FF", "RAMB36", "RAMB18", "URAM", "DSP"), 0)
    for primitive, number in cells.items():
        what = kind(primitive)
        if what in ("lut", "lutram", "shift"):
            used["LUT"] += number * MEMORY_LUTS.get(primitive, 1)
        elif what == "block":
            used["URAM" if primitive.startswith("URAM") else primitive[:6]] += number
        elif what in ("register", "dsp"):
            used["FF" if what == "register" else "DSP"] += number
    return used

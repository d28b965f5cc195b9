"""The longest ways between registers of a netlist by `synth_xilinx`, in levels of LUTs, for each clock.

What is between two registers counts: a LUT is one level, a carry chain one, however long it is, a look into memory made of LUTs one, a
multiplier without a register at its entry three (its delay is about that of three LUTs and their wires). Muxes in a slice (MUXF7, MUXF8) are
part of the LUTs that they join. Flip-flops, block RAMs, shift registers and multipliers' registers are where ways begin and end. No delay is known
before placement, and none is claimed.

`python -m hw.levels` shows a board's whole design, or one component of it with its ports counted as registers.
"""

import json
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import Signal, Value
from amaranth.lib.wiring import Component
from rich.console import Console

from hw.board.boards import BOARDS
from hw.board.shell import Shell
from hw.build import payload_memories_uninitialised, tool
from hw.replay.parts import PARTS as SERVICE
from hw.timing import PARTS

__all__ = ["Way", "longest", "main", "synthesise"]

BUILD = Path(__file__).parents[1] / "build" / "levels"
CLOCKS = {"C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK"}
MULTIPLIER_LEVELS = 3


@dataclass(frozen=True)
class Way:
    """From one register to another: their names, its levels, and the signals on the way, first to last."""

    clock: str
    levels: int
    begin: str
    end: str
    through: tuple[str, ...]


def kind(cell: str) -> str:
    for prefix, name in (("LUT", "lut"), ("CARRY", "carry"), ("MUXF", "mux"), ("FD", "register"), ("LD", "latch"), ("RAMB", "block"),
                         ("URAM", "block"), ("RAM", "lutram"), ("SRL", "shift"), ("DSP48", "dsp"), ("INV", "lut"), ("BUFG", "wire"), ("IBUF", "wire"),
                         ("OBUF", "wire")):
        if cell.startswith(prefix):
            return name
    raise ValueError(f"cell must be one of the Xilinx primitives known here, not {cell!r}")


def longest(netlist: dict[str, Any], top: str, *, most: int = 20, ports: bool = False) -> dict[str, list[Way]]:
    """For each clock the `most` longest ways that end at different registers, longest first. `netlist`: what Yosys' write_json wrote.

    Bits of one register count as one. `ports`: the module's ports are registers, too, of the clock "port". Raises ValueError for a loop without a
    register, and for cells that are not known here.
    """
    module = netlist["modules"][top]
    names: dict[int, str] = {}
    for name, net in module["netnames"].items():
        for position, bit in enumerate(net["bits"]):
            shown = name if len(net["bits"]) == 1 else f"{name}[{position}]"
            if bit not in names or (net.get("hide_name", 0), len(shown)) < (0 if not names[bit].startswith("$") else 1, len(names[bit])):
                names[bit] = shown

    drives: dict[int, tuple[str, str]] = {}      # bit -> cell, port
    clocks: dict[str, int] = {}
    for name, cell in module["cells"].items():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"][pin] == "output":
                drives.update((bit, (name, pin)) for bit in bits if isinstance(bit, int))
            elif pin in CLOCKS and bits and isinstance(bits[0], int):
                clocks[name] = bits[0]

    def clock_of(cell: str) -> str:
        bit = clocks.get(cell)
        while bit in drives and kind(module["cells"][drives[bit][0]]["type"]) == "wire":
            source = module["cells"][drives[bit][0]]
            bit = source["connections"]["I"][0]
        return names.get(bit, "none") if bit is not None else "none"

    def sequential(cell: dict[str, Any], pin: str, output: bool) -> bool:
        """Whether a way begins (output) or ends (input) at this pin."""
        what, parameters = kind(cell["type"]), cell["parameters"]
        if what in ("register", "latch", "block"):
            return True
        if what == "shift":
            return output or not pin.startswith("A")
        if what == "lutram":
            return not output and not re.fullmatch(r"A\d?|ADDR\w*|DPRA\d?|RA\d?", pin)
        if what == "dsp":
            number = lambda name: int(str(parameters.get(name, "0")), 2)
            if output:
                return number("PREG") > 0
            return number({"A": "AREG", "B": "BREG", "C": "CREG", "D": "DREG"}.get(pin, "PREG")) > 0 or number("MREG") + number("PREG") > 0
        return False

    def inside(cell: dict[str, Any], pin: str) -> int:
        """Levels between a pin where a way ends and the register, which in a multiplier may be behind the product."""
        if kind(cell["type"]) != "dsp" or pin not in ("A", "B", "D"):
            return 0
        return 0 if int(str(cell["parameters"].get(f"{pin}REG", "0")), 2) else MULTIPLIER_LEVELS

    # Arrival at each bit: the levels of the longest way to it from a register, and the bit before it. Iterative, since ways are deep.
    arrival: dict[int, tuple[int, int | None]] = {}
    state: dict[int, int] = {}

    def before(bit: int) -> list[tuple[int, int]]:
        """Bits that this one is made from without a register, and the levels that costs."""
        if bit not in drives:
            return []
        name, pin = drives[bit]
        cell = module["cells"][name]
        what = kind(cell["type"])
        if sequential(cell, pin, True):
            return []
        found = []
        for source, bits in cell["connections"].items():
            if cell["port_directions"][source] != "input" or sequential(cell, source, False) or source in CLOCKS:
                continue
            for other in bits:
                if not isinstance(other, int):
                    continue
                if what in ("lut", "lutram"):
                    cost = 1
                elif what == "dsp":
                    cost = MULTIPLIER_LEVELS
                elif what == "carry":
                    cost = 0 if source in ("CI",) else 1
                else:
                    cost = 0
                found.append((other, cost))
        return found

    def settle(root: int) -> None:
        stack = [root]
        while stack:
            bit = stack[-1]
            if bit in arrival:
                stack.pop()
                continue
            sources = before(bit)
            waits = [other for other, _ in sources if other not in arrival]
            if state.get(bit) == 1 and waits:
                raise ValueError(f"netlist must have no loop without a register, but {names.get(bit, bit)} is in one")
            if not waits:
                levels, previous = max(((arrival[other][0] + cost, other) for other, cost in sources), default=(0, None))
                arrival[bit] = (levels, previous)
                stack.pop()
            else:
                state[bit] = 1
                stack.extend(waits)

    ends: dict[tuple[str, str], tuple[int, int, str]] = {}
    for name, cell in module["cells"].items():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"][pin] != "input" or not sequential(cell, pin, False) or pin in CLOCKS:
                continue
            for bit in bits:
                if isinstance(bit, int):
                    settle(bit)
                    register = plain(names_of_outputs(cell, names) or name)
                    key, levels = (clock_of(name), register), arrival[bit][0] + inside(cell, pin)
                    if levels > ends.get(key, (-1,))[0]:
                        ends[key] = (levels, bit, register)

    for name, port in module["ports"].items():
        if ports and port["direction"] == "output":
            for bit in port["bits"]:
                if isinstance(bit, int):
                    settle(bit)
                    if arrival[bit][0] > ends.get(("port", name), (-1,))[0]:
                        ends["port", name] = (arrival[bit][0], bit, name)

    ways: dict[str, list[Way]] = defaultdict(list)
    for (clock, _), (levels, bit, register) in sorted(ends.items(), key=lambda item: -item[1][0]):
        if len(ways[clock]) >= most:
            continue
        through: list[str] = []
        at: int | None = bit
        while at is not None:
            through.append(names.get(at, str(at)))
            at = arrival[at][1]
        ways[clock].append(Way(clock, levels, plain(through[-1]), register, tuple(reversed(through))))
    return dict(ways)


def names_of_outputs(cell: dict[str, Any], names: dict[int, str]) -> str:
    """What a register is called: by the signal it drives."""
    for pin, bits in cell["connections"].items():
        if cell["port_directions"][pin] == "output":
            for bit in bits:
                if bit in names:
                    return names[bit]
    return ""


def plain(name: str) -> str:
    return re.sub(r"\[\d+\]$", "", name)


def synthesise(name: str, part: Component, *, family: str = "xc7") -> tuple[dict[str, Any], dict[str, int]]:
    """A component's netlist, top module `top`, and how many cells it has of each type. Files are left in `build/levels/<name>`."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    values = (Value.cast(port) for _, _, port in part.signature.flatten(part))
    with payload_memories_uninitialised():
        text = rtlil_backend.convert(part, name="top", ports=[value for value in values if isinstance(value, Signal)], emit_src=False)
    (folder / "top.il").write_text(text)
    tool("yosys", ["-q", "-l", "yosys.log", "-p", f"read_rtlil top.il; synth_xilinx -family {family} -top top -flatten -noiopad; "
                   "write_json top.json; tee -q -o stat.json stat -json"], folder)
    return (json.loads((folder / "top.json").read_text()),
            json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"])


def main(
    board: Annotated[str, typer.Option(help="Whose Config.")] = "netfpga_sume",
    only: Annotated[str, typer.Option(help=f"Only this component, its ports counted as registers: {', '.join(PARTS | SERVICE)}.")] = "",
    most: Annotated[int, typer.Option(help="Ways to show for each clock.")] = 20,
    through: Annotated[bool, typer.Option(help="The signals on the way, too.")] = False,
) -> None:
    """The longest ways between registers, in levels of LUTs."""
    console, of = Console(highlight=False, soft_wrap=True), BOARDS[board]
    parts = PARTS | (SERVICE if of.config.replay else {})
    if only and only not in parts:
        raise typer.BadParameter(f"there is no {only!r}; there are {', '.join(parts)}")
    part = parts[only](of.config) if only else Shell(of.config, clock_hz=round(of.core_mhz * 1e6))
    begun = time.monotonic()
    netlist, cells = synthesise(f"{board}-{only or 'whole'}", part, family="xc7" if of.family == "ecp5" else of.family)
    for clock, ways in longest(netlist, "top", most=most, ports=bool(only)).items():
        console.print(f"[bold]{clock}")
        for way in ways:
            console.print(f"{way.levels:4}  {way.begin} -> {way.end}")
            if through:
                console.print(f"      [dim]{' '.join(signal for signal in way.through[1:] if not signal.startswith('$'))}")
    console.print(f"[dim]{cells}, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    typer.run(main)

"""The longest ways between registers of a netlist by `synth_xilinx`, in levels of LUTs, for each clock.

What is between two registers counts: a LUT is one level, a carry chain one, however long it is, a look into memory made
of LUTs one, a multiplier without registers of its own three. The LUTs in front of a chain count by themselves: an adder
is two. Muxes in a slice (MUXF7, MUXF8) are part of the LUTs that they join, but their select is a level. Flip-flops,
block RAMs, shift registers and multipliers' registers are where ways begin and end; a block RAM's own delay, which is
that of several LUTs, is not counted. No delay is known before placement, and none is claimed.

`python -m hw.synthesis.paths` shows a board's whole design, or one component of it with its ports counted as registers.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from amaranth.lib.wiring import Component
from rich.console import Console

from hw.board.boards import BOARDS
from hw.board.shell import Shell
from hw.replay.parts import PARTS as SERVICE
from hw.synthesis.emit import component_rtlil, tool
from hw.synthesis.primitives import begins, clock_pin, ends, kind, passes
from hw.synthesis.timing import PARTS

__all__ = ["Netlist", "Way", "longest", "main", "synthesise"]

BUILD = Path(__file__).parents[2] / "build" / "levels"
ROUTE_PS = 1000
"""What a route from one LUT to the next is taken to last: more than the slowest way through a LUT. Told less (its own
figure is 300), Yosys saves a few LUTs by long chains of LUTs' fast inputs wherever it deems another way, most often one
from a block RAM, slower still."""
PORT = "port"
"""The clock of a module's ports, where they count as registers."""


@dataclass(frozen=True)
class Way:
    """From one register to another: their names, its levels, and the signals on the way, first to last. `clock`: that
    of its end."""

    clock: str
    levels: int
    begin: str
    end: str
    through: tuple[str, ...]


class Netlist:
    """A flat module of Xilinx primitives. ValueError for cells that are not known."""

    def __init__(self, module: dict[str, Any]):
        self.cells = {name: cell for name, cell in module["cells"].items() if kind(cell["type"]) != "none"}
        self.ports = module["ports"]
        self.names = names_of_bits(module["netnames"])
        self.drivers = {
            bit: (name, pin, position)
            for name, cell in self.cells.items()
            for pin, bits in cell["connections"].items()
            if cell["port_directions"][pin] == "output"
            for position, bit in enumerate(bits)
            if isinstance(bit, int)
        }

    def name(self, bit: int) -> str:
        """Of the register, memory or port that a way begins with at this bit, or of the signal."""
        if bit in self.drivers:
            return self.register(self.drivers[bit][0], bit)
        return plain(self.names.get(bit, f"bit {bit}"))

    def register(self, name: str, bit: int | None = None) -> str:
        """Memories are called by themselves, other cells by what they drive, by `bit` of it if given."""
        cell = self.cells[name]
        if kind(cell["type"]) in ("block", "lutram"):
            return re.sub(r"(\.\d+)+$", "", name)
        driven = (
            [[bit]]
            if bit is not None
            else [bits for pin, bits in cell["connections"].items() if cell["port_directions"][pin] == "output"]
        )
        found = [self.names[one] for bits in driven for one in bits if one in self.names]
        return plain(min(found, key=hidden, default=name))

    def clock(self, name: str, pin: str) -> str:
        """Of what ends or begins at a cell's pin."""
        clocked = clock_pin(self.cells[name], pin)
        bit = self.cells[name]["connections"][clocked][0] if clocked else None
        while bit in self.drivers and kind(self.cells[self.drivers[bit][0]]["type"]) == "wire":
            bit = self.cells[self.drivers[bit][0]]["connections"]["I"][0]
        return self.names.get(bit, "none") if isinstance(bit, int) else "none"

    def before(self, bit: int) -> list[tuple[int, int]]:
        """Bits that this one is made from without a register between, and the levels that costs."""
        if bit not in self.drivers:
            return []
        name, pin, position = self.drivers[bit]
        found = []
        for source, cost, other in passes(self.cells[name], pin, position):
            if isinstance(other, int):
                dedicated = (
                    source == "CI"
                    and other in self.drivers
                    and kind(self.cells[self.drivers[other][0]]["type"]) == "carry"
                )
                found.append((other, cost if source != "CI" or dedicated else 1))
        return found

    def ends(self) -> Iterator[tuple[str, str, int, int]]:
        """Where ways end: cell, pin, bit, and the levels between that pin and the register."""
        for name, cell in self.cells.items():
            for pin, bits in cell["connections"].items():
                if cell["port_directions"][pin] == "input" and (more := ends(cell, pin)) is not None:
                    yield from ((name, pin, bit, more) for bit in bits if isinstance(bit, int))


class Arrivals:
    """Levels of the longest way to each bit from a register."""

    def __init__(self, netlist: Netlist):
        self.netlist = netlist
        self.known: dict[int, tuple[int, int | None]] = {}
        """And the bit before it on that way."""

    def at(self, root: int) -> int:
        """ValueError for a loop without a register."""
        stack, opened = [root], set()  # no recursion: ways are deep
        while stack:
            bit = stack[-1]
            sources = [] if bit in self.known else self.netlist.before(bit)
            if waits := [other for other, _ in sources if other not in self.known]:
                if bit in opened:
                    raise ValueError(
                        f"netlist must have no loop without a register, but {self.netlist.name(bit)} is in one"
                    )
                opened.add(bit)
                stack.extend(waits)
                continue
            stack.pop()
            if bit not in self.known:
                self.known[bit] = max(
                    [(self.known[other][0] + cost, other) for other, cost in sources], default=(self.first(bit), None)
                )
                if (first := self.first(bit)) > self.known[bit][0]:
                    self.known[bit] = (first, None)
        return self.known[root][0]

    def first(self, bit: int) -> int:
        """Levels at which a way begins here."""
        if bit not in self.netlist.drivers:
            return 0
        name, pin, _ = self.netlist.drivers[bit]
        return begins(self.netlist.cells[name], pin) or 0

    def way(self, bit: int) -> list[int]:
        """The longest way to a bit, first to last."""
        bits = [bit]
        while (previous := self.known[bits[-1]][1]) is not None:
            bits.append(previous)
        return bits[::-1]


def longest(netlist: dict[str, Any], top: str, *, most: int = 20, ports: bool = False) -> dict[str, list[Way]]:
    """For each clock the `most` longest ways that end at different registers, longest first. `netlist`: what Yosys'
    write_json wrote.

    Bits of one register count as one. `ports`: the module's ports are registers, too, of the clock "port". Raises
    ValueError for a loop without a register, and for cells that are not known.
    """
    flat = Netlist(netlist["modules"][top])
    arrivals = Arrivals(flat)
    found: dict[tuple[str, str], tuple[int, int]] = {}

    def end(clock: str, register: str, bit: int, more: int) -> None:
        levels = arrivals.at(bit) + more
        if levels > found.get((clock, register), (-1, 0))[0]:
            found[clock, register] = (levels, bit)

    for name, pin, bit, more in flat.ends():
        end(flat.clock(name, pin), flat.register(name), bit, more)
    for name, port in flat.ports.items():
        if ports and port["direction"] == "output":
            for bit in port["bits"]:
                if isinstance(bit, int):
                    end(PORT, name, bit, 0)

    ways: dict[str, list[Way]] = defaultdict(list)
    for (clock, register), (levels, bit) in sorted(found.items(), key=lambda item: (-item[1][0], item[0])):
        if len(ways[clock]) < most:
            bits = arrivals.way(bit)
            ways[clock].append(
                Way(clock, levels, flat.name(bits[0]), register, tuple(flat.names.get(bit, str(bit)) for bit in bits))
            )
    return dict(ways)


def hidden(name: str) -> tuple[bool, int, str]:
    """An order of names: those that somebody gave first, then short ones."""
    return name.startswith("$"), len(name), name


def names_of_bits(nets: dict[str, Any]) -> dict[int, str]:
    """The name of each bit that tells the most."""
    names: dict[int, str] = {}
    for name, net in nets.items():
        for position, bit in enumerate(net["bits"]):
            if isinstance(bit, int):
                shown = name if len(net["bits"]) == 1 else f"{name}[{position}]"
                names[bit] = min(names.get(bit, shown), shown, key=hidden)
    return names


def plain(name: str) -> str:
    return re.sub(r"\[\d+\]$", "", name)


def synthesise(
    name: str, part: Component, *, family: str = "xc7", route_ps: int = ROUTE_PS
) -> tuple[dict[str, Any], dict[str, int]]:
    """A component's netlist, top module `top`, and how many cells it has of each type. `family`: xc7 or xcup.
    `route_ps`: what a route is taken to last, when ways are weighed against each other. Files are left in
    `build/levels/<name>`."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(component_rtlil(part, "top", synthesis=True))
    tool(
        "yosys",
        [
            "-q",
            "-l",
            "yosys.log",
            "-p",
            f"read_rtlil top.il; scratchpad -set synth_xilinx.abc9.W {route_ps}; "
            f"synth_xilinx -family {family} -top top -flatten -noiopad; write_json top.json; tee -q -o stat.json stat -json",
        ],
        folder,
    )
    return (
        json.loads((folder / "top.json").read_text()),
        json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"],
    )


def main(
    board: Annotated[str, typer.Option(help="Whose Config.")] = "netfpga_sume",
    only: Annotated[
        str, typer.Option(help=f"Only this component, its ports counted as registers: {', '.join(PARTS | SERVICE)}.")
    ] = "",
    most: Annotated[int, typer.Option(help="Ways to show for each clock.")] = 20,
    through: Annotated[bool, typer.Option(help="The signals on the way, too.")] = False,
    route_ps: Annotated[int, typer.Option(help="What a route is taken to last, in picoseconds.")] = ROUTE_PS,
) -> None:
    """The longest ways between registers, in levels of LUTs."""
    console = Console(highlight=False, soft_wrap=True)
    if board not in BOARDS:
        raise typer.BadParameter(f"there is no {board!r}; there are {', '.join(BOARDS)}")
    of, begun = BOARDS[board], time.monotonic()
    parts = PARTS | (SERVICE if of.config.replay else {})
    if only and only not in parts:
        raise typer.BadParameter(f"there is no {only!r}; there are {', '.join(parts)}")
    part = parts[only](of.config) if only else Shell(of.config, clock_hz=round(of.core_mhz * 1e6))
    netlist, cells = synthesise(
        f"{board}-{only or 'whole'}", part, family="xc7" if of.family == "ecp5" else of.family, route_ps=route_ps
    )
    for clock, ways in longest(netlist, "top", most=most, ports=bool(only)).items():
        console.print(f"[bold]{clock}")
        for way in ways:
            console.print(f"{way.levels:4}  {way.begin} -> {way.end}", markup=False)
            if through:
                console.print(
                    f"      {' '.join(signal for signal in way.through[1:] if not signal.startswith('$'))}",
                    markup=False,
                    style="dim",
                )
    console.print(f"{cells}, {time.monotonic() - begun:.0f} s", style="dim")


if __name__ == "__main__":
    typer.run(main)

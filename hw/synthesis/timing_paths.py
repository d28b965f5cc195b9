"""The critical paths of a netlist made by `synth_xilinx` or `synth_ecp5`, in logic levels, for each clock.

Logic levels between two registers are counted: one for a LUT, one for a carry chain of any length, one for a read of a
memory made of LUTs, three for a multiplier without registers of its own. The LUTs in front of a carry chain count by
themselves, so an adder is two levels. Muxes inside a slice (MUXF7, MUXF8) belong to the LUTs that they join, but their
select input is a level. Paths begin and end at flip-flops, block RAMs, shift registers and registers of multipliers.
The delay of a block RAM itself, as long as several LUTs, is not counted. No delay is known before placement, and none
is claimed.

`python -m hw.board.critical_paths` prints them for a board or for one component.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from amaranth.lib.wiring import Component

from hw.synthesis import primitives
from hw.synthesis.emit import component_rtlil, tool

__all__ = ["ROUTE_PS", "Arrivals", "Netlist", "Primitives", "TimingPath", "critical_paths", "synthesise"]

BUILD = Path(__file__).parents[2] / "build" / "levels"
ROUTE_PS = 10_000
"""Delay that Yosys assumes for a route from one LUT to the next, in picoseconds: so long that it compares paths by
their levels. With its default of 300, Yosys saves a few LUTs by more levels, through the fast inputs of LUTs, wherever
it takes another path, most often one from a block RAM, to be slower still."""
CARRY_PINS = ("CI", "CIN")
"""The inputs of carry cells for the carry of another one."""
PORT = "port"
"""Name of the clock of a module's ports, if they count as registers."""


class Primitives(Protocol):
    """A vendor's primitives: `hw.synthesis.primitives` or `hw.synthesis.ecp5_primitives`."""

    def kind(self, primitive: str) -> str: ...
    def clock_pin(self, cell: dict[str, Any], pin: str) -> str | None: ...
    def begins(self, cell: dict[str, Any], pin: str) -> int | None: ...
    def ends(self, cell: dict[str, Any], pin: str) -> int | None: ...
    def passes(self, cell: dict[str, Any], pin: str, position: int) -> Iterator[tuple[str, int, int | str]]: ...


@dataclass(frozen=True)
class TimingPath:
    """A path from one register to another: the names of both, its logic levels, and the signals along the path in
    order. `clock` is the clock of the register where the path ends."""

    clock: str
    levels: int
    begin: str
    end: str
    through: tuple[str, ...]


class Netlist:
    """A flat module of `primitives`. Raises ValueError for cells that are not known."""

    def __init__(self, module: dict[str, Any], primitives: Primitives = primitives):
        self.primitives = primitives
        self.cells = {name: cell for name, cell in module["cells"].items() if primitives.kind(cell["type"]) != "none"}
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
        """Return the name of the register, memory or port where a path begins at this bit, or the name of the
        signal."""
        if bit in self.drivers:
            return self.register(self.drivers[bit][0], bit)
        return plain(self.names.get(bit, f"bit {bit}"))

    def register(self, name: str, bit: int | None = None) -> str:
        """Return the name of a cell: a memory's own name, or the name of the signal that the cell drives (at `bit`)."""
        cell = self.cells[name]
        if self.primitives.kind(cell["type"]) in ("block", "lutram"):
            return re.sub(r"(\.\d+)+$", "", name)
        driven = (
            [[bit]]
            if bit is not None
            else [bits for pin, bits in cell["connections"].items() if cell["port_directions"][pin] == "output"]
        )
        found = [self.names[one] for bits in driven for one in bits if one in self.names]
        return plain(min(found, key=hidden, default=name))

    def of_kind(self, name: str, kind: str) -> bool:
        """Return whether a cell is of a kind of primitives."""
        return self.primitives.kind(self.cells[name]["type"]) == kind

    def clock(self, name: str, pin: str) -> str:
        """Return the clock of the register behind a cell's pin."""
        clocked = self.primitives.clock_pin(self.cells[name], pin)
        bit = self.cells[name]["connections"][clocked][0] if clocked else None
        while bit in self.drivers and self.of_kind(self.drivers[bit][0], "wire"):
            bit = self.cells[self.drivers[bit][0]]["connections"]["I"][0]
        return self.names.get(bit, "none") if isinstance(bit, int) else "none"

    def sources(self, bit: int) -> list[tuple[int, int]]:
        """Return the bits that this bit is computed from without a register between, each with the levels that it
        costs."""
        if bit not in self.drivers:
            return []
        name, pin, position = self.drivers[bit]
        found = []
        for source, cost, other in self.primitives.passes(self.cells[name], pin, position):
            if isinstance(other, int):
                dedicated = (
                    source in CARRY_PINS and other in self.drivers and self.of_kind(self.drivers[other][0], "carry")
                )
                found.append((other, cost if source not in CARRY_PINS or dedicated else 1))
        return found

    def ends(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the end points of paths: cell, pin, bit, and the levels between that pin and the register."""
        for name, cell in self.cells.items():
            for pin, bits in cell["connections"].items():
                if cell["port_directions"][pin] == "input" and (more := self.primitives.ends(cell, pin)) is not None:
                    yield from ((name, pin, bit, more) for bit in bits if isinstance(bit, int))


class Arrivals:
    """The most logic levels from any register to each bit."""

    def __init__(self, netlist: Netlist):
        self.netlist = netlist
        self.known: dict[int, tuple[int, int | None]] = {}
        """By bit: its levels, and the bit before it on the critical path."""

    def at(self, root: int) -> int:
        """Return the levels of a bit. Raises ValueError for a combinational loop."""
        stack, opened = [root], set()  # no recursion: paths are deep
        while stack:
            bit = stack[-1]
            sources = [] if bit in self.known else self.netlist.sources(bit)
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
        """Return the levels that a path which begins here has already."""
        if bit not in self.netlist.drivers:
            return 0
        name, pin, _ = self.netlist.drivers[bit]
        return self.netlist.primitives.begins(self.netlist.cells[name], pin) or 0

    def path(self, bit: int) -> list[int]:
        """Return the bits of the critical path to a bit, first to last."""
        bits = [bit]
        while (previous := self.known[bits[-1]][1]) is not None:
            bits.append(previous)
        return bits[::-1]


def critical_paths(
    netlist: dict[str, Any], top: str, *, most: int = 20, ports: bool = False, primitives: Primitives = primitives
) -> dict[str, list[TimingPath]]:
    """Return for each clock the `most` longest paths that end at different registers, longest first.

    `netlist` is what Yosys' write_json wrote. The bits of one register count as one end. With `ports` the module's
    ports count as registers of the clock "port". Raises ValueError for a combinational loop, and for cells that are not
    known.
    """
    flat = Netlist(netlist["modules"][top], primitives)
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

    paths: dict[str, list[TimingPath]] = defaultdict(list)
    for (clock, register), (levels, bit) in sorted(found.items(), key=lambda item: (-item[1][0], item[0])):
        if len(paths[clock]) < most:
            bits = arrivals.path(bit)
            paths[clock].append(
                TimingPath(
                    clock, levels, flat.name(bits[0]), register, tuple(flat.names.get(bit, str(bit)) for bit in bits)
                )
            )
    return dict(paths)


def hidden(name: str) -> tuple[bool, int, str]:
    """Sort key of names: names given in the sources first, then short ones."""
    return name.startswith("$"), len(name), name


def names_of_bits(nets: dict[str, Any]) -> dict[int, str]:
    """Return the most telling name of each bit."""
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
    """Return a component's netlist, with top module `top`, and the number of its cells by type.

    `family` is xc7 or xcup, `route_ps` the delay of a route that Yosys assumes when it compares paths. The files stay
    in `build/levels/<name>`.
    """
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
            f"synth_xilinx -family {family} -top top -flatten -noiopad; write_json top.json; tee -q -o stat.json "
            "stat -json",
        ],
        folder,
    )
    return (
        json.loads((folder / "top.json").read_text()),
        json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"],
    )

"""A design as Yosys reads it: the signals that cross from one clock to another."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hw.board.xilinx.ip import Port, stub
from hw.synthesis.emit import tool

__all__ = ["Bit", "Netlist", "read"]

Bit = int | str
"""A bit of a net; a string is a constant."""
REGISTERS = {"$dff", "$dffe", "$adff", "$adffe", "$sdff", "$sdffe", "$sdffce", "$aldff", "$aldffe"}
MEMORIES = {"$mem", "$mem_v2"}
THROUGH = {"IBUFDS": ("I", "O"), "IBUFDS_GTE4": ("I", "O"), "BUFG": ("I", "O")}
"""Buffers: the output is the input."""


@dataclass(frozen=True)
class Netlist:
    """`cells` of the flat design, names with "/" between levels; `ports` of the top with their bits; `pins` of modules
    that are not ours."""

    cells: Mapping[str, Mapping[str, Any]]
    ports: Mapping[str, tuple[str, tuple[Bit, ...]]]
    names: Mapping[Bit, str]
    pins: Mapping[str, Mapping[str, Port]]

    def pin(self, path: str) -> Bit | None:
        """Return the net at a cell's pin, named as by `get_pins`."""
        cell, _, name = path.rpartition("/")
        bits = self.cells.get(cell, {}).get("connections", {}).get(name)
        return bits[0] if bits else None

    def source(self, bit: Bit) -> Bit:
        """Return the source of a clock, through buffers."""
        while bit in self._buffers:
            bit = self._buffers[bit]
        return bit

    @cached_property
    def _buffers(self) -> dict[Bit, Bit]:
        found = {}
        for cell in self.cells.values():
            if cell["type"] in THROUGH:
                into, out = THROUGH[cell["type"]]
                found[cell["connections"][out][0]] = cell["connections"][into][0]
        return found

    @cached_property
    def clocks(self) -> dict[Bit, str]:
        """Return the clocks of registers and IP, each with one of its users."""
        found: dict[Bit, str] = {}
        for clock, _, user, _ in self.ends():
            if clock is not None:
                found.setdefault(clock, user)
        return found

    def ends(self) -> Iterator[tuple[Bit | None, str, str, list[Bit]]]:
        """Return all start points ("from") and end points ("to") of paths: clock or None, cell, bits."""
        for name, cell in self.cells.items():
            kind, nets = cell["type"], cell["connections"]
            if kind in REGISTERS:
                clock = self.source(nets["CLK"][0])
                yield clock, "from", name, nets["Q"]
                yield clock, "to", name, [bit for pin in ("D", "EN", "SRST") for bit in nets.get(pin, ())]
            elif kind in MEMORIES:
                yield from self._memory(name, cell)
            elif kind in self.pins and kind not in THROUGH:
                pins = self.pins[kind]
                for pin, bits in nets.items():
                    port = pins.get(pin)
                    if port is None or port.clock in ("clock", "pad", "async"):
                        continue
                    clock = self.source(nets[port.clock][0])
                    yield clock, "from" if port.flow == "out" else "to", f"{name}/{pin}", bits

    def _memory(self, name: str, cell: Mapping[str, Any]) -> Iterator[tuple[Bit | None, str, str, list[Bit]]]:
        nets, parameters = cell["connections"], cell["parameters"]
        writers, readers = int(parameters["WR_PORTS"], 2), int(parameters["RD_PORTS"], 2)
        write_clocks = {self.source(bit) for bit in nets["WR_CLK"]} if writers else set()
        for kind, ports in (("WR", writers), ("RD", readers)):
            for k in range(ports):
                share = lambda pin, kind=kind, ports=ports, k=k: nets[f"{kind}_{pin}"][
                    len(nets[f"{kind}_{pin}"]) // ports * k : len(nets[f"{kind}_{pin}"]) // ports * (k + 1)
                ]
                registered = parameters[f"{kind}_CLK_ENABLE"][::-1][k] == "1"
                clock = self.source(share("CLK")[0]) if registered else None
                if kind == "WR":
                    yield clock, "to", name, [*share("ADDR"), *share("DATA"), *share("EN")]
                elif registered:
                    yield clock, "to", name, [*share("ADDR"), *share("EN")]
                    yield clock, "from", name, share("DATA")
                else:  # read data follows written data
                    for write in write_clocks:
                        yield write, "from", name, share("DATA")

    @cached_property
    def crossings(self) -> dict[tuple[Bit, Bit], tuple[str, str]]:
        """Return the pairs of clocks between which signals cross, each with the start and the end of one such path. An
        input of a cell reaches all outputs of that cell."""
        begins: dict[Bit, dict[Bit, str]] = defaultdict(dict)
        ends: dict[Bit, list[tuple[Bit, str]]] = defaultdict(list)
        for clock, side, name, bits in self.ends():
            for bit in bits:
                if clock is not None and isinstance(bit, int):
                    if side == "from":
                        begins[clock].setdefault(bit, name)
                    else:
                        ends[bit].append((clock, name))
        behind = self._logic()
        found: dict[tuple[Bit, Bit], tuple[str, str]] = {}
        for source, registers in begins.items():
            seen, passed, waiting = set(registers), set(), list(registers.items())
            while waiting:
                bit, register = waiting.pop()
                for sink, name in ends.get(bit, ()):
                    if sink != source:
                        found.setdefault((source, sink), (register, name))
                for cell, outputs in behind.get(bit, ()):
                    if cell not in passed:
                        passed.add(cell)
                        waiting += [(output, register) for output in outputs if output not in seen]
                        seen.update(outputs)
        return found

    def _logic(self) -> dict[Bit, list[tuple[str, list[Bit]]]]:
        """Return the cells of logic that read each net, and the nets that these drive."""
        found: dict[Bit, list[tuple[str, list[Bit]]]] = defaultdict(list)
        for name, cell in self.cells.items():
            if cell["type"].startswith("$") and cell["type"] not in REGISTERS | MEMORIES:
                directions, nets = cell["port_directions"], cell["connections"]
                outputs = [bit for pin, bits in nets.items() if directions[pin] == "output" for bit in bits]
                for bit in {
                    bit
                    for pin, bits in nets.items()
                    if directions[pin] == "input"
                    for bit in bits
                    if isinstance(bit, int)
                }:
                    found[bit].append((name, outputs))
        return found


READ: dict[tuple[tuple[str, str], ...], Netlist] = {}
"""The last few designs, so that a change of constraints need not wait for Yosys."""


def read(sources: Mapping[str, str], modules: Mapping[str, Mapping[str, Port]]) -> Netlist:
    """Read the design `top`, flat. `sources` is Verilog by file name, `modules` those that are not among them. Raises
    RuntimeError with Yosys' message for an unknown module or pin, or a net with two drivers."""
    key = (("stubs.v", "".join(stub(name, pins) for name, pins in modules.items())), *sources.items())
    if key not in READ:
        design = flattened(key)
        names = {
            bit: name
            for name, net in sorted(design["netnames"].items(), key=lambda item: -len(item[0]))
            for bit in net["bits"]
        }
        cells = {name.lstrip("\\"): cell for name, cell in design["cells"].items()}
        ports = {name: (port["direction"], tuple(port["bits"])) for name, port in design["ports"].items()}
        while len(READ) > 3:
            READ.pop(next(iter(READ)))
        READ[key] = Netlist(cells, ports, names, modules)
    return READ[key]


def flattened(sources: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return the module `top` of Yosys' JSON. Memories stay as they are written: data that is read without a clock goes
    on to the next register."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        for name, text in sources:
            (there / name).write_text(text)
        files = " ".join(f"read_verilog {name};" for name, _ in sources)
        tool(
            "yosys",
            [
                "-q",
                "-p",
                f"{files} hierarchy -check -top top; proc; flatten -separator /; opt_expr; opt_clean; check -assert; "
                "memory_collect; write_json top.json",
            ],
            there,
        )
        return json.loads((there / "top.json").read_text())["modules"]["top"]

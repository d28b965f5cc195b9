"""Checks a board's project without the vendor's tools: pins, clocks, clock domain crossings, IP and the script. Each
breach is a sentence.

`python -m hw.board.xilinx.check netfpga_sume` checks a project in memory, with an empty shell.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from hw.board.xilinx.ip import PRIMITIVES, Port
from hw.board.xilinx.netlist import Bit, Netlist, read
from hw.board.xilinx.script import script_rules
from hw.board.xilinx.tcl import Command, Nested, commands
from hw.board.xilinx.xdc import Constraints, options, xdc

__all__ = ["Project", "check"]

SERIAL = ("gtwizard", "gtwizard_ultrascale", "cmac_usplus")
"""IP whose pads are the pins of transceivers."""


@dataclass(frozen=True)
class Project:
    """A project: `files` by name, with `project.tcl` among them; `modules` has the pins of all modules that are not in
    its Verilog; `stubbed` is Verilog that is left out, with its module in `modules`; `hidden` are patterns of pins that
    make clocks which Vivado does not derive."""

    files: Mapping[str, str]
    modules: Mapping[str, Mapping[str, Port]]
    part: str
    stubbed: tuple[str, ...] = ("shell.v",)
    hidden: tuple[str, ...] = ()


def check(project: Project) -> list[str]:
    """Return all breaches; an empty list if the project is sound."""
    if "project.tcl" not in project.files:
        return ["there is no project.tcl"]
    script = list(commands(project.files["project.tcl"]))
    found = list(files_there(project, script))
    if found:
        return found
    sources = [str(command[1]) for command in script if command[0] == "read_verilog"]
    try:
        netlist = read({name: project.files[name] for name in sources if name not in project.stubbed}, project.modules)
    except RuntimeError as error:
        return [f"the Verilog is not sound: {str(error).strip().splitlines()[-1]}"]
    constraints = Constraints()
    for command in script:
        if command[0] == "read_xdc":
            constraints = xdc(project.files[str(command[1])])
    made = {
        str(given["-module_name"][0]): str(given["-name"][0])
        for command in script
        if command[0] == "create_ip"
        for given in [options(command)[0]]
    }
    bits = port_bits(project.files[sources[0]], netlist)
    return [
        *constraints.faults,
        *ip_rules(made, netlist),
        *pin_rules(project, constraints, netlist, made, bits),
        *clock_rules(project, constraints, netlist),
        *crossing_rules(constraints, netlist),
        *script_rules(script, project.part),
    ]


def files_there(project: Project, script: Sequence[Command]) -> Iterator[str]:
    for command in script:
        listed = [str(command[1])] if command[0] in ("read_verilog", "read_xdc") else []
        listed += re.findall(
            r"\$here/([\w.]+)", " ".join(word.text if isinstance(word, Nested) else word for word in command)
        )
        yield from (f"project.tcl takes {name}, which is not there" for name in listed if name not in project.files)


def ip_rules(made: Mapping[str, str], netlist: Netlist) -> Iterator[str]:
    ours = {"shell", "port"}
    used = {cell["type"]: name for name, cell in netlist.cells.items() if not cell["type"].startswith("$")}
    for kind, cell in used.items():
        if kind not in made and kind not in PRIMITIVES and kind not in ours:
            yield f"cell {cell} is a {kind}, which no create_ip makes"
    yield from (f"create_ip makes {module}, which nothing instantiates" for module in made if module not in used)


def port_bits(text: str, netlist: Netlist) -> dict[str, Bit]:
    """Return each bit of each port, by the name that constraints use, with its net."""
    body = re.search(r"^module top\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    buses = set(re.findall(r"^  (?:input|output|inout) \[\d+:\d+\] (\w+);", body.group() if body else "", re.MULTILINE))
    return {
        f"{name}[{k}]" if name in buses else name: bit
        for name, (_, nets) in netlist.ports.items()
        for k, bit in enumerate(nets)
    }


def pin_rules(
    project: Project, c: Constraints, netlist: Netlist, made: Mapping[str, str], bits: Mapping[str, Bit]
) -> Iterator[str]:
    given = {port: dict(values) for port, values in c.ports.items()}
    for name, text in project.files.items():
        if name.endswith(".prj"):
            for pin in ElementTree.fromstring(text).iter("Pin"):
                if pin.get("IOSTANDARD"):
                    given[pin.get("name", "")] = {
                        "PACKAGE_PIN": pin.get("PADName", ""),
                        "IOSTANDARD": pin.get("IOSTANDARD", ""),
                    }
    serial = set()
    for cell in netlist.cells.values():
        pins = netlist.pins.get(cell["type"], {})
        if made.get(cell["type"]) in SERIAL:
            serial |= {
                bit
                for pin, nets in cell["connections"].items()
                if pin in pins and pins[pin].clock == "pad"
                for bit in nets
            }
        elif cell["type"] == "IBUFDS_GTE4":
            serial |= {*cell["connections"]["I"], *cell["connections"]["IB"]}
    sites: dict[str, str] = {}
    for port, bit in bits.items():
        values = given.get(port, {})
        if "PACKAGE_PIN" not in values:
            yield f"port {port} has no pin"
            if bit in serial and port.replace("tx_n", "tx_p") == port:
                continue
        site = values.get("PACKAGE_PIN", "")
        if site and sites.setdefault(site, port) != port:
            yield f"pin {site} is given to {sites[site]} and to {port}"
        if bit in serial and "IOSTANDARD" in values:
            yield f"port {port} is a transceiver's pin, which has no I/O standard, and is given {values['IOSTANDARD']}"
        if bit not in serial and "PACKAGE_PIN" in values and "IOSTANDARD" not in values:
            yield f"port {port} has no I/O standard"
    yield from (f"constraints name port {port}, which is not there" for port in given if port not in bits)
    for pattern in sorted(c.patterns):
        plain = pattern.removesuffix("[*]")
        if plain not in netlist.ports or (pattern not in bits and not pattern.endswith("[*]")):
            yield f"constraints name port {pattern}, which is not there"


def clock_nets(c: Constraints, netlist: Netlist) -> dict[Bit, str]:
    """Return the nets that carry a named clock."""
    found: dict[Bit, str] = {}
    for name, (kind, place) in c.clocks.items():
        if kind == "port" and place in netlist.ports:
            found[netlist.ports[place][1][0]] = name
        elif kind == "pin":
            bit = netlist.pin(place)
            if bit is not None:
                found[bit] = name
    return found


def clock_rules(project: Project, c: Constraints, netlist: Netlist) -> Iterator[str]:
    nets = clock_nets(c, netlist)
    for name, (kind, place) in c.clocks.items():
        there = place in netlist.ports if kind == "port" else netlist.pin(place) is not None
        if not there:
            yield f"clock {name} is made at {kind} {place}, which is not there"
    for bit, user in netlist.clocks.items():
        if bit not in nets:
            yield f"{plain(user)} runs with a clock that constraints do not name"
    inputs = {bits[0]: port for port, (direction, bits) in netlist.ports.items() if direction == "input"}
    wanted: dict[str, str] = {}
    for name, cell in netlist.cells.items():
        for pin, bits in cell["connections"].items():
            port = netlist.pins.get(cell["type"], {}).get(pin)
            takes = pin == "CLKIN1" or (
                port is not None
                and port.flow == "in"
                and (port.clock == "clock" or re.search(r"ref_?clk.*_p(_in)?$", pin))
            )
            source = netlist.source(bits[0]) if takes and bits else None
            if source in inputs and source not in nets:
                wanted.setdefault(inputs[source], f"{name}/{pin}")
    yield from (f"clock of port {port}, which {user} takes, is not defined" for port, user in wanted.items())
    yield from (f"clock of pin {pattern} is not defined" for pattern in project.hidden if pattern not in c.hidden)
    yield from (f"constraints name clock {name}, which is not defined" for name in sorted(c.named - c.clocks.keys()))


def crossing_rules(c: Constraints, netlist: Netlist) -> Iterator[str]:
    nets = clock_nets(c, netlist)
    for (source, sink), (begin, end) in netlist.crossings.items():
        if source in nets and sink in nets and (nets[source], nets[sink]) not in c.apart:
            yield (
                f"signals go from clock {nets[source]} to clock {nets[sink]}, as from {plain(begin)} to "
                f"{plain(end)}, and no constraint says so"
            )


def plain(name: str) -> str:
    """Return a cell's name without Yosys' name of the process."""
    return re.sub(r"/\\?\$procdff\$\d+$", "", name.replace("$flatten\\", "").replace("\\", "")).replace("//", "/")


def main(names: Sequence[str]) -> int:
    from hw.board.boards import BOARDS
    from hw.board.xilinx.vivado import stubbed_project

    status = 0
    for name in names or [name for name, board in BOARDS.items() if board.maker.startswith("hw.board.xilinx.vivado:")]:
        found = check(stubbed_project(BOARDS[name]))
        print(f"{name}: {'sound' if not found else ''}", *found, sep="\n  ")
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

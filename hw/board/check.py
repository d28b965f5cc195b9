"""Checks a board's project without the vendor's tools: pins, clocks, crossings, IP and the script, each breach as a sentence.

`python -m hw.board.check netfpga_sume` checks the project that it writes to memory, with the shell's inside left out.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from hw.board.netlist import Bit, Netlist, read
from hw.board.tcl import Command, Nested, commands, words
from hw.board.xilinx_ip import PRIMITIVES, Port

__all__ = ["Constraints", "Project", "check", "check_lpf", "xdc"]

SERIAL = ("gtwizard", "gtwizard_ultrascale", "cmac_usplus")
"""IP whose pads are transceivers' pins."""
KNOWN = {"set_property", "create_clock", "create_generated_clock", "set", "set_max_delay", "set_false_path", "set_clock_groups"}


@dataclass(frozen=True)
class Project:
    """`files` by name, among them `project.tcl`; `modules`: pins of all modules that are not among its Verilog; `stubbed`: Verilog that is left
    out, its
    module being among `modules`; `hidden`: patterns of pins that make clocks which Vivado does not know by itself."""

    files: Mapping[str, str]
    modules: Mapping[str, Mapping[str, Port]]
    part: str
    stubbed: tuple[str, ...] = ("shell.v",)
    hidden: tuple[str, ...] = ()


@dataclass
class Constraints:
    """What an XDC file says. `ports`: properties by bit of a port; `clocks`: by name, the object it is made at ("port", name) or ("pin", path);
    `hidden`:
    patterns of pins at which clocks are made; `apart`: pairs of clocks between which paths are bounded or cut."""

    ports: dict[str, dict[str, str]] = field(default_factory=dict)
    clocks: dict[str, tuple[str, str]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    apart: set[tuple[str, str]] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def options(command: Command) -> tuple[dict[str, list], list]:
    """`-name value` pairs, a name without value as True, and the rest. What takes no value is known by name."""
    found: dict[str, list] = {}
    rest = []
    flags = {"-datapath_only", "-asynchronous", "-hierarchical", "-quiet", "-include_generated_clocks"}
    k = 1
    while k < len(command):
        word = command[k]
        if isinstance(word, str) and re.match(r"-[a-z]", word):
            if word in flags:
                found.setdefault(word, []).append(True)
            else:
                k += 1
                found.setdefault(word, []).append(command[k] if k < len(command) else "")
        else:
            rest.append(word)
        k += 1
    return found, rest


def xdc(text: str) -> Constraints:
    """Reads the subset that `hw.board.constraints` writes, and what people add to it."""
    c = Constraints()
    for command in commands(text):
        name = command[0]
        given, rest = options(command)
        if name not in KNOWN:
            c.faults.append(f"constraints use {name}, which is not known here")
        elif name == "set_property":
            _property(c, given, rest)
        elif name in ("create_clock", "create_generated_clock"):
            _clock(c, name, given, rest)
        elif name == "set":
            kind, target = objects(rest[1])
            c.clocks[str(rest[0])] = ("pin", target[0]) if kind == "clocks of pins" else (kind, " ".join(target))
        elif name == "set_clock_groups":
            groups = [clock_names(c, group) for group in given.get("-group", [])]
            if "-asynchronous" in given:
                c.apart |= {(a, b) for x in groups for y in groups if x is not y for a in x for b in y}
        else:
            _exception(c, name, given)
    return c


def objects(word) -> tuple[str, list[str]]:
    """What a query in brackets asks for: "ports" and so on, and the names."""
    if not isinstance(word, Nested):
        return "text", words(word)
    (command,) = word.commands
    given, rest = options(command)
    kind = str(command[0]).removeprefix("get_")
    if "-of_objects" in given:
        inner, names = objects(given["-of_objects"][0])
        return f"{kind} of {inner}", names
    if "-filter" in given:
        return f"{kind} like", [re.sub(r"^\s*NAME\s*=~\s*", "", str(given["-filter"][0])).strip()]
    return kind, [name for part in rest for name in words(str(part))]


def _property(c: Constraints, given, rest) -> None:
    kind, names = objects(rest[-1])
    if "-dict" in given:
        listed = words(str(given["-dict"][0]))
        values = dict(zip(listed[::2], listed[1::2], strict=False))
    else:
        values = {str(rest[0]): str(rest[1])}
    if kind == "ports":
        for port in names:
            for key, value in values.items():
                key = "PACKAGE_PIN" if key == "LOC" else key
                if c.ports.setdefault(port, {}).get(key, value) != value:
                    c.faults.append(f"port {port} is given {key} {c.ports[port][key]} and {value}")
                c.ports[port][key] = value


def _clock(c: Constraints, command: str, given, rest) -> None:
    kind, names = objects(rest[-1]) if rest else ("nothing", [])
    name = str(given.get("-name", ["?"])[0])
    if name in c.clocks:
        c.faults.append(f"clock {name} is defined twice")
    if kind == "ports":
        c.clocks[name] = ("port", names[0])
    elif kind == "pins":
        c.clocks[name] = ("pin", names[0])
    elif kind == "pins like":
        c.hidden.add(names[0])
    if command == "create_clock" and not float(str(given.get("-period", ["0"])[0])) > 0:
        c.faults.append(f"clock {name} has no period")


def clock_names(c: Constraints, word) -> list[str]:
    """Clocks by name, by a variable, or by a query."""
    if isinstance(word, Nested):
        kind, names = objects(word)
        if kind != "clocks":
            return [name for name, place in c.clocks.items() if place == ("pin", names[0])]
    else:
        names = [name.removeprefix("$") for name in words(word)]
    c.named |= set(names)
    return names


def _exception(c: Constraints, name: str, given) -> None:
    ends = {}
    for side in ("-from", "-to"):
        for word in given.get(side, []):
            kind, names = objects(word) if isinstance(word, Nested) else ("clocks", [])
            if kind == "ports":
                c.patterns |= set(names)
            elif kind.startswith("clocks"):
                ends[side] = clock_names(c, word)
    if len(ends) == 2 and (name == "set_false_path" or "-datapath_only" in given):
        c.apart |= {(a, b) for a in ends["-from"] for b in ends["-to"]}


def check(project: Project) -> list[str]:
    """All breaches; none if the project is sound."""
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
    made = {str(given["-module_name"][0]): str(given["-name"][0]) for command in script if command[0] == "create_ip"
            for given in [options(command)[0]]}
    bits = port_bits(project.files[sources[0]], netlist)
    return [*constraints.faults, *ip_rules(made, netlist), *pin_rules(project, constraints, netlist, made, bits),
            *clock_rules(project, constraints, netlist), *crossing_rules(constraints, netlist), *script_rules(project, script)]


def files_there(project: Project, script: Sequence[Command]) -> Iterator[str]:
    for command in script:
        listed = [str(command[1])] if command[0] in ("read_verilog", "read_xdc") else []
        listed += re.findall(r"\$here/([\w.]+)", " ".join(word.text if isinstance(word, Nested) else word for word in command))
        yield from (f"project.tcl takes {name}, which is not there" for name in listed if name not in project.files)


def ip_rules(made: Mapping[str, str], netlist: Netlist) -> Iterator[str]:
    ours = {"shell", "port"}
    used = {cell["type"]: name for name, cell in netlist.cells.items() if not cell["type"].startswith("$")}
    for kind, cell in used.items():
        if kind not in made and kind not in PRIMITIVES and kind not in ours:
            yield f"cell {cell} is a {kind}, which no create_ip makes"
    yield from (f"create_ip makes {module}, which nothing instantiates" for module in made if module not in used)


def port_bits(text: str, netlist: Netlist) -> dict[str, Bit]:
    """Each bit of each port by the name that constraints use, and its net."""
    body = re.search(r"^module top\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    buses = set(re.findall(r"^  (?:input|output|inout) \[\d+:\d+\] (\w+);", body.group() if body else "", re.MULTILINE))
    return {f"{name}[{k}]" if name in buses else name: bit for name, (_, nets) in netlist.ports.items() for k, bit in enumerate(nets)}


def pin_rules(project: Project, c: Constraints, netlist: Netlist, made: Mapping[str, str], bits: Mapping[str, Bit]) -> Iterator[str]:
    given = {port: dict(values) for port, values in c.ports.items()}
    for name, text in project.files.items():
        if name.endswith(".prj"):
            for pin in ElementTree.fromstring(text).iter("Pin"):
                if pin.get("IOSTANDARD"):
                    given[pin.get("name", "")] = {"PACKAGE_PIN": pin.get("PADName", ""), "IOSTANDARD": pin.get("IOSTANDARD", "")}
    serial = set()
    for cell in netlist.cells.values():
        pins = netlist.pins.get(cell["type"], {})
        if made.get(cell["type"]) in SERIAL:
            serial |= {bit for pin, nets in cell["connections"].items() if pin in pins and pins[pin].clock == "pad" for bit in nets}
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
    """Nets that carry a clock with a name."""
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
            takes = pin == "CLKIN1" or (port is not None and port.flow == "in" and (port.clock == "clock" or re.search(r"ref_?clk.*_p(_in)?$", pin)))
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
            yield f"signals go from clock {nets[source]} to clock {nets[sink]}, as from {plain(begin)} to {plain(end)}, and no constraint says so"


def plain(name: str) -> str:
    """A cell's name, without what Yosys calls a process."""
    return re.sub(r"/\\?\$procdff\$\d+$", "", name.replace("$flatten\\", "").replace("\\", "")).replace("//", "/")


def script_rules(project: Project, script: Sequence[Command]) -> Iterator[str]:
    places: dict[str, int] = {}
    for k, command in enumerate(script):
        places.setdefault(str(command[0]), k)
        if command[0] in ("create_project", "synth_design"):
            given, _ = options(command)
            if given.get("-part") != [project.part]:
                yield f"{command[0]} takes part {given.get('-part', ['none'])[0]}, not {project.part}"
    steps = ["create_project", "synth_design", "opt_design", "place_design", "route_design", "write_bitstream"]
    missing = [step for step in steps if step not in places]
    yield from (f"project.tcl lacks {step}" for step in missing)
    if missing:
        return
    if [places[step] for step in steps] != sorted(places[step] for step in steps):
        yield f"project.tcl has its steps not in the order {', '.join(steps)}"
    for report in ("report_utilization", "report_timing_summary", "report_cdc", "report_methodology"):
        if not any(k > places["route_design"] and command[0] == report for k, command in enumerate(script)):
            yield f"project.tcl lacks {report} behind route_design"
    for kind, way in (("setup", "max"), ("hold", "min")):
        if not guarded(script, places, kind, way):
            yield f"project.tcl writes a bitstream without having stopped for {kind} that is not met"


def guarded(script: Sequence[Command], places: Mapping[str, int], kind: str, way: str) -> bool:
    """Behind routing and in front of the bitstream, the slack is taken, and if it is below zero or none there is an error."""
    window = range(places["route_design"] + 1, places["write_bitstream"])
    taken = [k for k in window if script[k][:2] == ("set", kind) and isinstance(script[k][2], Nested)
             and re.search(rf"get_property SLACK \[get_timing_paths .*-delay_type {way}\b", script[k][2].text)]
    return any(
        script[k][0] == "if" and f"${kind} < 0" in str(script[k][1]) and f"${kind} eq {{}}" in str(script[k][1]) and "&&" not in str(script[k][1])
        and any(inner[0] == "error" for inner in commands(str(script[k][2]))) for begin in taken for k in window if k > begin)


def check_lpf(text: str, bits: Iterable[str], clocks: Iterable[str]) -> list[str]:
    """Of an ECP5 board's preferences: every bit of every port has a site and an I/O type, no site is given twice, nothing is named that is not
    there, and each clock that comes in has a frequency. bits: as the file names them, name[k] of a bus."""
    found, wanted = [], set(bits)
    text = re.sub(r"#.*|//.*", "", text)
    sites: dict[str, str] = {}
    placed, typed, timed = {}, set(), set()
    for statement in (part.strip() for part in text.split(";")):
        if match := re.fullmatch(r'LOCATE\s+COMP\s+"([^"]+)"\s+SITE\s+"([^"]+)"', statement):
            port, site = match.groups()
            if sites.setdefault(site, port) != port:
                found.append(f"pin {site} is given to {sites[site]} and to {port}")
            placed[port] = site
        elif match := re.fullmatch(r'IOBUF\s+PORT\s+"([^"]+)"\s*(.*)', statement, re.DOTALL):
            if "IO_TYPE=" in match.group(2):
                typed.add(match.group(1))
        elif match := re.fullmatch(r'FREQUENCY\s+(?:PORT|NET)\s+"([^"]+)"\s+([\d.]+)(?:\s+MHZ|\s+HZ)?', statement):
            timed.add(match.group(1))
        elif statement and not re.match(r"BLOCK|SYSCONFIG|DEFINE|USE", statement):
            found.append(f"preferences have {statement.split()[0]}, which is not known here")
    found += [f"port {port} has no pin" for port in sorted(wanted - placed.keys())]
    found += [f"port {port} has no I/O standard" for port in sorted((wanted & placed.keys()) - typed)]
    found += [f"constraints name port {port}, which is not there" for port in sorted((placed.keys() | typed) - wanted)]
    found += [f"clock of port {clock} is not defined" for clock in sorted(set(clocks) - timed)]
    return found


def main(names: Sequence[str]) -> int:
    from hw.board.boards import BOARDS
    from hw.board.vivado import stubbed_project

    status = 0
    for name in names or [name for name, board in BOARDS.items() if board.maker.startswith("hw.board.vivado:")]:
        found = check(stubbed_project(BOARDS[name]))
        print(f"{name}: {'sound' if not found else ''}", *found, sep="\n  ")
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Reads constraints for Vivado: an XDC file as pins, clocks, and exceptions for paths between clocks."""

import re
from dataclasses import dataclass, field

from hw.board.xilinx.tcl import Command, Nested, commands, words

__all__ = ["Constraints", "options", "xdc"]

KNOWN = {
    "set_property",
    "create_clock",
    "create_generated_clock",
    "set",
    "set_max_delay",
    "set_false_path",
    "set_clock_groups",
}


@dataclass
class Constraints:
    """The content of an XDC file. `ports`: properties by bit of a port. `clocks`: by name, the object at which it is
    made, ("port", name) or ("pin", path). `hidden`: patterns of pins at which clocks are made. `apart`: pairs of clocks
    between which paths are bounded or cut."""

    ports: dict[str, dict[str, str]] = field(default_factory=dict)
    clocks: dict[str, tuple[str, str]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    apart: set[tuple[str, str]] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def options(command: Command) -> tuple[dict[str, list], list]:
    """Return `-name value` pairs, a name without value as True, and the remaining words. Names without a value are
    listed here."""
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
    """Parse the subset that `hw.board.xilinx.constraints` writes, and common additions."""
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
    """Return the result of a query in brackets: "ports" and so on, and the names."""
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
    """Return clocks by name, by a variable, or by a query."""
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

"""Rewrites the Verilog of Yosys so that Verilator makes less code of it that runs every cycle.

The rewritten Verilog means the same, register by register and cycle by cycle. A piece of text in another form than the
one that Yosys writes stays as it is.
"""

import re
from collections import Counter

__all__ = ["rewritten"]

NAME = r"(?:\\\S+ |[A-Za-z_][A-Za-z0-9_$]*)"
TOKEN = re.compile(NAME)
MODULE = re.compile(r"^(?=module )", re.MULTILINE)
MODULE_NAME = re.compile(rf"module ({NAME})")
PLAIN_REGISTER = re.compile(rf"^  always_ff @\(posedge clk\)\n    ({NAME}) <= ({NAME});\n", re.MULTILINE)
NEXT_VALUE = re.compile(rf"^  always_comb begin\n(    ({NAME}) = (.*);\n(?:.*\n)*?)  end\n", re.MULTILINE)
TARGET = rf"^( +)({NAME}) *((?:\[[0-9:]+\] +)?)= "
GENERATED_PORT = re.compile(r"\\port\$\d+\$\d+(?= )")
CONNECTION = re.compile(r"^    \.(\\port\$\d+\$\d+)(?= )", re.MULTILINE)
INSTANCE = re.compile(rf"^  ({NAME}) *{NAME} *\(\n(?:    \..*\n)+  \);\n", re.MULTILINE)
SHARED_LINES = 300
"""Least length of a module of which Verilator is to make code once, and not once for each instance."""


def rewritten(text: str) -> str:
    """Return Verilog with registers that load under their conditions, and with each module once."""
    head, *modules = MODULE.split(text)
    return head + "".join(_shared([_folded(module) for module in modules]))


def _folded(module: str) -> str:
    """Return a module in which the next values of registers are no signals.

    Amaranth computes the next value of a register in a block of its own, which begins with the present value. So each
    bit of every register would be computed and copied in every cycle. Here the conditions stand in the register's
    block, and nothing happens unless one of them holds.
    """
    uses = Counter(name.strip() for name in TOKEN.findall(module))
    registers: dict[str, list[str]] = {}
    for register, following in PLAIN_REGISTER.findall(module):
        registers.setdefault(following.strip(), []).append(register)
    folded = set[str]()

    def clocked(block: re.Match[str]) -> str:
        body, following, first = block[1], block[2].strip(), block[3].strip()
        loads = registers.get(following, [])
        targets = [name.strip() for _, name, _ in re.findall(TARGET, body, re.MULTILINE)]
        # It is used where it is declared, where it is computed, and by its register.
        if len(loads) != 1 or set(targets) != {following} or uses[following] != len(targets) + 2:
            return block[0]
        folded.add(following)
        if first == loads[0].strip():
            body = body.split("\n", 1)[1]
        body = re.sub(TARGET, lambda target: f"{target[1]}{loads[0]} {target[3]}<= ", body, flags=re.MULTILINE)
        return f"  always_ff @(posedge clk) begin\n{body}  end\n"

    module = NEXT_VALUE.sub(clocked, module)
    return PLAIN_REGISTER.sub(lambda load: "" if load[2].strip() in folded else load[0], module)


def _shared(modules: list[str]) -> list[str]:
    """Return modules of which no two are the same but for their names.

    Amaranth writes a module for each instance. Large ones that are used more than once are not to be inlined: the
    instances run the same code, so it stays in the processor's cache and is compiled once.
    """
    modules = _with_plain_ports(modules)
    while True:
        first_of: dict[str, str] = {}
        same: dict[str, str] = {}
        kept = []
        for module in modules:
            name = _name(module)
            body = module.removeprefix(f"module {name}")
            if body in first_of:
                same[name.strip()] = first_of[body]
            else:
                first_of[body] = name
                kept.append(module)
        if not same:
            break
        modules = [INSTANCE.sub(lambda instance: _retyped(instance, same), module) for module in kept]
    instances = Counter(kind.strip() for module in modules for kind in INSTANCE.findall(module))
    return [
        module.replace(");\n", "); /*verilator no_inline_module*/\n", 1)
        if instances[_name(module).strip()] > 1 and module.count("\n") >= SHARED_LINES
        else module
        for module in modules
    ]


def _name(module: str) -> str:
    found = MODULE_NAME.match(module)
    if not found:
        raise ValueError(f"a Verilog module must begin with its name, not {module[:40]!r}")
    return found[1]


def _retyped(instance: re.Match[str], same: dict[str, str]) -> str:
    kind = instance[1]
    return instance[0].replace(kind, same.get(kind.strip(), kind), 1)


def _with_plain_ports(modules: list[str]) -> list[str]:
    """Return modules in which the names that Amaranth makes for ports do not depend on other modules."""
    names: dict[str, dict[str, str]] = {}
    for module in modules:
        header = module[: module.index(");")] + " "
        found = dict.fromkeys(GENERATED_PORT.findall(header))
        names[_name(module).strip()] = {port: f"\\port.{number}" for number, port in enumerate(found)}

    def renamed(module: str) -> str:
        own = names[_name(module).strip()]
        pieces, end = [], 0
        rename = lambda text: GENERATED_PORT.sub(lambda port: own.get(port[0], port[0]), text)
        for instance in INSTANCE.finditer(module):
            pieces.append(rename(module[end : instance.start()]))
            its = names.get(instance[1].strip(), {})
            lines = instance[0].splitlines(keepends=True)
            for line in lines:
                connected = CONNECTION.match(line)
                port = its.get(connected[1], connected[1]) if connected else ""
                pieces.append(f"    .{port}{rename(line[connected.end() :])}" if connected else rename(line))
            end = instance.end()
        return "".join([*pieces, rename(module[end:])])

    return [renamed(module) for module in modules]

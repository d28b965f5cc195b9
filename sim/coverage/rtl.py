"""Which branches of the RTL a load executes, which states its state machines reach, and which bits change.

`python -m sim.coverage.rtl` compiles a switch in which Verilator counts (`--coverage-line`, `--coverage-toggle`), and
runs the load of `sim.coverage.load` on it, each frame beside the golden model. All parts run in all cycles, and the
Verilog is as Yosys writes it, so that each count belongs to a line of it.

A *branch* is an arm of an `m.If`, an `m.Switch`, an `m.State` or a `Mux`, counted for each signal that it drives. A
*state* is a state of an `m.FSM`. A *bit* is one of a signal with a name, up to 256 bits wide; it has changed if it both
rose and fell.
"""

import json
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple
from unittest.mock import patch

import numpy as np
import typer

from sim.bench.designs import SOAK
from sim.coverage.load import parts
from sim.emulator import engine
from sim.emulator.compile import counted_verilog, library
from sim.emulator.toolchain import ROOT

__all__ = ["RECORD", "Counts", "Gap", "Share", "counted", "gaps", "kept", "part_of", "shares", "table"]

RECORD = ROOT / "docs" / "rtl_coverage.json"
"""The shares and gaps of docs/verification.md."""
KINDS = ("branches", "states", "bits")
MODULE = re.compile(r"module \\?(\S+?)\s*\(")
BLOCK = re.compile(r"    (\\\S+ |\w+) *(?:\[[0-9:]+\] )?=")
STATE = re.compile(r"casez \((fsm_state\S*)\s*\)")
ARM = re.compile(r"\s*(\d+)'h([0-9a-f]+):")
PLACE = re.compile(r'src = "(hw/[^"]+)"')
INSTANCE = re.compile(r"(_\d+|\$\d+)+(?=\.|$)")


class Gap(NamedTuple):
    """A branch or a state that no part of the load reached: its module, its place in the sources, or where the Verilog
    does not say that the signal that it drives, and the Verilog."""

    module: str
    kind: str
    place: str
    text: str


class Share(NamedTuple):
    """How many of a part's branches, states or bits were reached."""

    reached: int
    all: int


class Counts:
    """The counts of all boards of one library."""

    def __init__(self) -> None:
        self.points: list[dict[str, str]] = []
        self.reached = np.zeros(0, bool)

    def add(self, path: Path) -> None:
        """Add what a board has written."""
        lines = [line for line in path.read_bytes().split(b"\n") if line.startswith(b"C ")]
        if not self.points:
            self.points = [_fields(line) for line in lines]
            self.reached = np.zeros(len(lines), bool)
        if len(lines) != len(self.points):
            raise ValueError(f"counts must be those of one library: {len(lines)} points beside {len(self.points)}")
        self.reached |= np.fromiter((not line.endswith(b" 0") for line in lines), bool, len(lines))


def _fields(line: bytes) -> dict[str, str]:
    body = line[3 : line.rindex(b"' ")].decode()
    return dict(field.split("\x02", 1) for field in body.split("\x01") if field)


def part_of(module: str) -> str:
    """Return the part of the switch to which a module belongs: its submodule of the switch, without the number of an
    instance, and in the core one more level."""
    names = [INSTANCE.sub("", name) for name in module.split(".")[2:]]
    return ".".join(names[: 2 if names[:1] == ["core"] else 1]) or "switch"


class Source(NamedTuple):
    """What a line of the Verilog belongs to."""

    module: str
    offset: int
    """Lines from the module's first one: the same in all instances of a module."""
    target: str
    state: str | None
    """Of a state machine: the value of its state, if the line is such an arm."""
    text: str


def _sources(verilog: str) -> list[Source]:
    """Return what each line of the Verilog belongs to; the first line has number 1."""
    found, module, begin, target, machine = [Source("", 0, "", None, "")], "", 0, "", -1
    for number, line in enumerate(verilog.split("\n"), start=1):
        state = None
        if named := MODULE.match(line):
            module, begin = named[1], number
        elif line.startswith(("  always", "  assign")):
            target, machine = "", -1
        elif not target and (assigned := BLOCK.match(line)):
            target = assigned[1].strip()
        depth = len(line) - len(line.lstrip())
        if STATE.search(line):
            machine = depth
        elif machine >= 0 and depth == machine + 2 and (arm := ARM.match(line)):
            state = arm[2]
        elif machine >= 0 and depth <= machine:
            machine = -1
        found.append(Source(module, number - begin, target, state, line.strip()))
    return found


def _points(counts: Counts, verilog: str) -> Iterator[tuple[str, str, tuple[str, ...], bool, Source]]:
    """Yield kind, part, name and whether it was reached, of each point in the switch, with its place."""
    sources = _sources(verilog)
    for point, reached in zip(counts.points, counts.reached.tolist(), strict=True):
        if point["f"] != "switch.v":
            continue
        source = sources[int(point["l"])]
        if point["page"].startswith("v_toggle"):
            name, direction = point["o"].rsplit(":", 1)
            if "$" not in name:
                yield "bits", source.module, (name, direction), reached, source
            continue
        if point["o"] == "block":
            continue
        yield "branches", source.module, (str(source.offset), point["n"], point["o"]), reached, source
        if source.state is not None:
            yield "states", source.module, (source.state,), reached, source


def shares(counts: Counts, verilog: str) -> dict[str, dict[str, Share]]:
    """Return by part and kind how many points were reached. Instances of one module count once."""
    names: dict[tuple[str, str], dict[tuple[str, ...], bool]] = defaultdict(dict)
    for kind, module, name, reached, _ in _points(counts, verilog):
        known = names[part_of(module), kind]
        key = (INSTANCE.sub("", module), *name)
        known[key] = known.get(key, False) or reached
    result: dict[str, dict[str, Share]] = defaultdict(dict)
    for (part, kind), known in sorted(names.items()):
        if kind == "bits":  # both directions
            both = Counter(key[:-1] for key, reached in known.items() if reached)
            result[part][kind] = Share(sum(number == 2 for number in both.values()), len({key[:-1] for key in known}))
        else:
            result[part][kind] = Share(sum(known.values()), len(known))
    return dict(result)


def gaps(counts: Counts, verilog: str) -> list[Gap]:
    """Return the branches and states that were not reached, the former once for each line of the Verilog."""
    found: dict[Gap, bool] = {}
    for kind, module, name, reached, source in _points(counts, verilog):
        if kind == "bits":
            continue
        place = at[1] if (at := PLACE.search(source.text)) else source.target
        text = source.state if kind == "states" else f"{source.text} {name[2] if name[2] != 'case' else ''}".strip()
        gap = Gap(INSTANCE.sub("", module), kind, "" if kind == "states" else place, text or "")
        found[gap] = found.get(gap, False) or reached
    return [gap for gap, reached in found.items() if not reached]


@contextmanager
def counted(counts: Counts) -> Iterator[None]:
    """Compile all switches meanwhile so that they count, and add the counts of each board when it is closed."""
    close = engine.Board.close

    def closing(board: engine.Board) -> None:
        if not board.closed:
            with tempfile.TemporaryDirectory() as folder:
                board.write_coverage(written := Path(folder) / "counts.dat")
                counts.add(written)
        close(board)

    with patch.object(engine, "library", partial(library, coverage=True)), patch.object(engine.Board, "close", closing):
        yield


def table(found: dict[str, dict[str, Share]]) -> str:
    """Return the shares as a table in Markdown, a row for each part."""
    lines = ["| part | branches | states | bits |", "|---|---|---|---|"]
    sums = {
        kind: Share(*(sum(row[kind][k] for row in found.values() if kind in row) for k in (0, 1))) for kind in KINDS
    }
    for part, row in [*found.items(), ("all", sums)]:
        cells = [f"{row[kind].reached:,} of {row[kind].all:,}" if kind in row else "" for kind in KINDS]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kept(path: Path = RECORD) -> tuple[dict[str, dict[str, Share]], list[Gap]]:
    """Return the shares and gaps that a file keeps."""
    found = json.loads(path.read_text())
    return (
        {part: {kind: Share(*share) for kind, share in row.items()} for part, row in found["shares"].items()},
        [Gap(*gap) for gap in found["gaps"]],
    )


def main(
    scale: Annotated[float, typer.Option(help="A factor of the lengths of the load's parts.")] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Keep the shares and gaps in this file.")] = None,
    show: Annotated[Path | None, typer.Option(help="Print what a file keeps instead of running the load.")] = None,
) -> None:
    """Run the load on a switch of four ports, and print what of its RTL was reached; half an hour."""
    if show:
        found, missed = kept(show)
    else:
        counts = Counts()
        for name, run in parts(SOAK, scale=scale):
            begun = time.monotonic()
            with counted(counts):
                run()
            print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
        verilog = counted_verilog(SOAK)
        found, missed = shares(counts, verilog), gaps(counts, verilog)
    if out:
        rows = ",\n".join(json.dumps(gap) for gap in missed)
        out.write_text(f'{{"shares": {json.dumps(found)},\n"gaps": [\n{rows}\n]}}\n')
    print(table(found))
    for gap in missed:
        print(f"gap: {' '.join(filter(None, gap))}")


if __name__ == "__main__":
    typer.run(main)

"""`python -m hw.board.utilisation`: resource utilisation of the boards' designs and of components in a Xilinx part, as
Yosys synthesises them, without placement.

LUTs are an upper bound, since vendors' tools put two small ones into one, and include those that are memory. The
longest ways are counted in levels (`hw.synthesis.timing_paths`); how long they take is not known before they are placed. Designs of
ECP5 boards are mapped to the 7 series, as a second opinion.

What is expected stands in docs/boards.md (`hw.board.expected`); `--update` writes what was counted there.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from amaranth.lib.wiring import Component
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

import hw.synthesis.timing_paths
from hw.board.boards import BOARDS, DEFAULT, Board
from hw.board.expected import update
from hw.board.shell import Shell
from hw.replay.engine import Engine
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.sum_tree import SumTree
from hw.synthesis.primitives import resources
from hw.synthesis.timing import PARTS
from hw.synthesis.timing_paths import TimingPath, critical_paths
from iswitch.config import Config, Replay

__all__ = ["CORE_CLOCK", "DESIGNS", "Design", "available", "block_rams", "count", "main", "xilinx_report"]

BUILD = Path(__file__).parents[2] / "build" / "counts"
SUME = BOARDS["netfpga_sume"]
CORE_CLOCK = "clk"
"""The netlist's name of the clock of domain `sync`."""
WAYS = 20


class Design(NamedTuple):
    """`make` elaborates nothing yet. `of`: the board whose part it is counted against. `ports`: count the ports as
    registers. `expected`: it has a row in docs/boards.md."""

    make: Callable[[], Component]
    of: Board = SUME
    ports: bool = True
    expected: bool = False

    @property
    def family(self) -> str:
        return "xcup" if self.of.family == "xcup" else "xc7"


def whole(board: Board) -> Design:
    """The NetFPGA-SUME has a row in the table, and of the ECP5 boards, which are placed and timed for real, one as a
    second opinion."""
    return Design(
        lambda: Shell(board.config, clock_hz=round(board.core_mhz * 1e6)),
        board,
        ports=False,
        expected=board.name in (SUME.name, DEFAULT),
    )


def of_sume(name: str) -> Design:
    return Design(lambda: PARTS[name](SUME.config), expected=True)


DESIGNS: dict[str, Design] = {
    **{f"sume-{name}": of_sume(name) for name in ("queue", "parser", "sequencer", "composer", "output", "counters")},
    **{f"sume-{name}": of_sume(name)._replace(expected=False) for name in ("core", "accumulator")},
    "sampler-10x27": Design(lambda: Sampler(capacity=1 << 10, priority_bits=27), expected=True),
    **{name: whole(board) for name, board in BOARDS.items()},
    "phased-20x18": Design(lambda: SumTree(capacity=1 << 20, priority_bits=18, phased=True)),
    "mixed-19x18": Design(lambda: SumTree(capacity=1 << 19, priority_bits=18)),
    "phased-20x27": Design(lambda: SumTree(capacity=1 << 20, priority_bits=27, phased=True)),
    "mixed-19x27": Design(lambda: SumTree(capacity=1 << 19, priority_bits=27)),
    "sampler-19x18": Design(lambda: Sampler(capacity=1 << 19, priority_bits=18)),
    "sampler-19x27": Design(lambda: Sampler(capacity=1 << 19, priority_bits=27)),
    "phased-sampler-20x18": Design(lambda: Sampler(capacity=1 << 20, priority_bits=18, phased=True)),
    "phased-sampler-20x27": Design(lambda: Sampler(capacity=1 << 20, priority_bits=27, phased=True)),
    "service-17x27": Design(lambda: Engine(Config(replay=Replay(capacity=1 << 17, priority_bits=27)))),
    "service-20x18": Design(
        lambda: Engine(Config(replay=Replay(capacity=1 << 20, priority_bits=18, phased=True, times_bits=0)))
    ),
}
"""Components at the NetFPGA-SUME's Config, and a small sampler (core and accumulator take minutes, and are in the
whole); the boards' switches in their shells; the replay service at several sizes: variant, leaves as a power of two,
bits of a priority. A sampler is a tree with histogram and handles, and if it is not phased with a table of priorities
in front. The service is all of it, at 256 bits; of 20 it is phased and does not count draws."""


def count(name: str, design: Design) -> dict[str, Any]:
    """Resources, the most levels, and the longest ways. Files are left in `build/levels/<name>`."""
    begun = time.monotonic()
    netlist, cells = hw.synthesis.timing_paths.synthesise(name, design.make(), family=design.family)
    ways = critical_paths(netlist, "top", most=WAYS, ports=design.ports)
    return {
        **resources(cells),
        "levels": max((found[0].levels for found in ways.values()), default=0),
        "ways": described(ways),
        "seconds": round(time.monotonic() - begun),
    }


def described(ways: Mapping[str, list[TimingPath]]) -> list[dict[str, Any]]:
    return sorted((asdict(way) for found in ways.values() for way in found), key=lambda way: -way["levels"])


def block_rams(used: Mapping[str, int]) -> float:
    """In RAMB36, of which a RAMB18 is a half."""
    return used["RAMB36"] + used["RAMB18"] / 2


def available(board: Board) -> dict[str, int]:
    """What the part has of each resource that is counted; nothing of a Xilinx part's in an ECP5."""
    if "RAMB36" not in board.available:
        return {}
    return {"URAM": 0, **board.available, "RAMB18": 2 * board.available["RAMB36"]}


def xilinx_report(
    board: Board,
    netlist: dict[str, Any],
    cells: Mapping[str, int],
    *,
    top: str = "top",
    required_mhz: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """`report.json` of a board that no tool here can place: `timing_met` and `achieved_mhz` are None, since nothing is
    known of them.

    netlist, cells: as `hw.synthesis.timing_paths.synthesise` gives them. required_mhz: of clocks by their names in the netlist; that of
    the core is known. "block RAM" is what RAMB36 and RAMB18 take together, in whole RAMB36.
    """
    needed = {CORE_CLOCK: board.core_mhz, **(required_mhz or {})}
    ways = critical_paths(netlist, top, most=WAYS)
    used, most = resources(dict(cells)), available(board)
    found = {name: {"used": number, "available": most[name]} for name, number in used.items() if number or most[name]}
    found["block RAM"] = {"used": ceil(block_rams(used)), "available": most["RAMB36"]}
    clocks = {
        clock: {"required_mhz": needed.get(clock), "achieved_mhz": None, "levels": of[0].levels}
        for clock, of in ways.items()
    }
    return {
        "board": board.name,
        "part": board.part,
        "timing_met": None,
        "clocks": clocks,
        "resources": found,
        "ways": described(ways),
    }


def row(name: str, one: dict[str, Any], most: Mapping[str, int]) -> list[str]:
    """Of the table that is shown: numbers, and of a whole design their share of the part."""
    share = lambda number, of: f" ({number / most[of]:.1%})" if most.get(of) else ""
    return [
        name,
        f"{one['LUT']:,}{share(one['LUT'], 'LUT')}",
        f"{one['FF']:,}{share(one['FF'], 'FF')}",
        f"{one['RAMB36']:,}",
        f"{one['RAMB18']:,}",
        share(block_rams(one), "RAMB36").strip(" ()"),
        f"{one['URAM']:,}",
        f"{one['DSP']:,}{share(one['DSP'], 'DSP')}",
        str(one["levels"]),
    ]


def main(
    only: Annotated[str, typer.Option(help=f"Only these, with commas between them: {', '.join(DESIGNS)}.")] = "",
    write: Annotated[
        bool,
        typer.Option("--update", help="Write what was counted into docs/boards.md; without --only all that is there."),
    ] = False,
    most: Annotated[int, typer.Option(help="Ways to show of each.")] = 3,
) -> None:
    """What designs take of a Xilinx part, and their longest ways."""
    console = Console(highlight=False, soft_wrap=True)
    names = only.split(",") if only else [name for name, design in DESIGNS.items() if design.expected or not write]
    for name in names:
        if name not in DESIGNS:
            raise typer.BadParameter(f"there is no {name!r}; there are {', '.join(DESIGNS)}")
    BUILD.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    widths = {"LUT": 7, "FF": 7, "RAMB36": 6, "RAMB18": 6, "of all RAM": 6, "URAM": 4, "DSP": 6, "levels": 6}
    table = Table(
        Column("", no_wrap=True),
        *(Column(title, min_width=width) for title, width in widths.items()),
        box=SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for name in names:
        found[name] = one = count(name, DESIGNS[name])
        table.add_row(*row(name, one, available(DESIGNS[name].of)))
        console.print(f"{name}: {one['seconds']} s", style="dim")
        for way in one["ways"][:most]:
            console.print(f"  {way['levels']:3}  {way['clock']}: {way['begin']} -> {way['end']}", markup=False)
        (BUILD / "report.json").write_text(json.dumps(found, indent=1) + "\n")
        if write:  # each at once: the whole takes long
            update({name: one}, order=DESIGNS)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

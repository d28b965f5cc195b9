"""`python -m hw.board.utilisation`: resource utilisation of the boards' designs and of components in a Xilinx part, as
Yosys synthesises them, without placement.

LUTs are an upper bound, since vendors' tools put two small ones into one, and include those used as memory. Critical
paths are counted in logic levels (`hw.synthesis.timing_paths`); their delay is not known before placement. Designs of
ECP5 boards are mapped to the 7 series, as a second opinion.

docs/boards.md has the expected counts (`hw.board.expected`); `--update` writes the present ones there.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
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

__all__ = [
    "CORE_CLOCK",
    "DESIGNS",
    "Design",
    "available",
    "block_rams",
    "count",
    "main",
    "with_half_width",
    "xilinx_report",
]

BUILD = Path(__file__).parents[2] / "build" / "counts"
SUME = BOARDS["netfpga_sume"]
CORE_CLOCK = "clk"
"""Name of the clock of domain `sync` in the netlist."""
PATHS = 20


class Design(NamedTuple):
    """A design to count.

    `make` elaborates nothing yet. `of` is the board with whose part it is compared. With `ports` its ports count as
    registers. With `expected` it has a row in docs/boards.md.
    """

    make: Callable[[], Component]
    of: Board = SUME
    ports: bool = True
    expected: bool = False

    @property
    def family(self) -> str:
        return "xcup" if self.of.family == "xcup" else "xc7"


def board_design(board: Board) -> Design:
    """Return the switch of a board in its shell.

    The table has a row of the NetFPGA-SUME. The row of one ECP5 board checks the estimate, since that board is also
    placed and timed.
    """
    return Design(
        lambda: Shell(board.config, clock_hz=round(board.core_mhz * 1e6)),
        board,
        ports=False,
        expected=board.name in (SUME.name, DEFAULT),
    )


def with_half_width(board: Board) -> Board:
    """Return the board with half-width formats in its switch."""
    return replace(board, config=replace(board.config, half_width=True))


def of_sume(name: str) -> Design:
    return Design(lambda: PARTS[name](SUME.config), expected=True)


DESIGNS: dict[str, Design] = {
    **{f"sume-{name}": of_sume(name) for name in ("queue", "parser", "sequencer", "composer", "output", "counters")},
    **{f"sume-{name}": of_sume(name)._replace(expected=False) for name in ("core", "accumulator")},
    "sampler-10x27": Design(lambda: Sampler(capacity=1 << 10, priority_bits=27), expected=True),
    **{name: board_design(board) for name, board in BOARDS.items()},
    "phased-20x18": Design(lambda: SumTree(capacity=1 << 20, priority_bits=18, single_copy=True)),
    "mixed-19x18": Design(lambda: SumTree(capacity=1 << 19, priority_bits=18)),
    "phased-20x27": Design(lambda: SumTree(capacity=1 << 20, priority_bits=27, single_copy=True)),
    "mixed-19x27": Design(lambda: SumTree(capacity=1 << 19, priority_bits=27)),
    "sampler-19x18": Design(lambda: Sampler(capacity=1 << 19, priority_bits=18)),
    "sampler-19x27": Design(lambda: Sampler(capacity=1 << 19, priority_bits=27)),
    "phased-sampler-20x18": Design(lambda: Sampler(capacity=1 << 20, priority_bits=18, single_copy=True)),
    "phased-sampler-20x27": Design(lambda: Sampler(capacity=1 << 20, priority_bits=27, single_copy=True)),
    "service-17x27": Design(lambda: Engine(Config(replay=Replay(capacity=1 << 17, priority_bits=27)))),
    "service-20x18": Design(
        lambda: Engine(Config(replay=Replay(capacity=1 << 20, priority_bits=18, single_copy=True, sample_count_bits=0)))
    ),
}
"""Components at the NetFPGA-SUME's Config, and a small sampler (core and accumulator take minutes, and are part of the
whole). The boards' switches in their shells. The replay service at several sizes: variant, leaves as a power of two,
bits of a priority. A sampler is a tree with histogram and handles and, unless `single_copy`, a table of
priorities in front. The service is complete, at 256 bits; with 2^20 leaves it stores priorities once and does not count
samples."""


def count(name: str, design: Design) -> dict[str, Any]:
    """Return resources, the most logic levels, and the critical paths of a design. The files stay in
    `build/levels/<name>`."""
    begun = time.monotonic()
    netlist, cells = hw.synthesis.timing_paths.synthesise(name, design.make(), family=design.family)
    paths = critical_paths(netlist, "top", most=PATHS, ports=design.ports)
    return {
        **resources(cells),
        "levels": max((found[0].levels for found in paths.values()), default=0),
        "paths": described(paths),
        "seconds": round(time.monotonic() - begun),
    }


def described(paths: Mapping[str, list[TimingPath]]) -> list[dict[str, Any]]:
    return sorted((asdict(path) for found in paths.values() for path in found), key=lambda path: -path["levels"])


def block_rams(used: Mapping[str, int]) -> float:
    """Return the block RAMs in units of RAMB36; a RAMB18 is a half."""
    return used["RAMB36"] + used["RAMB18"] / 2


def available(board: Board) -> dict[str, int]:
    """Return the part's amount of each counted resource; empty for an ECP5."""
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
    """Return `report.json` of a board that no tool here can place: `timing_met` and `achieved_mhz` are None.

    `netlist` and `cells` are those of `hw.synthesis.timing_paths.synthesise`. `required_mhz` has clocks by their names
    in the netlist; the core's is known. "block RAM" is the sum of RAMB36 and RAMB18, in whole RAMB36.
    """
    needed = {CORE_CLOCK: board.core_mhz, **(required_mhz or {})}
    paths = critical_paths(netlist, top, most=PATHS)
    used, most = resources(dict(cells)), available(board)
    found = {name: {"used": number, "available": most[name]} for name, number in used.items() if number or most[name]}
    found["block RAM"] = {"used": ceil(block_rams(used)), "available": most["RAMB36"]}
    clocks = {
        clock: {"required_mhz": needed.get(clock), "achieved_mhz": None, "levels": of[0].levels}
        for clock, of in paths.items()
    }
    return {
        "board": board.name,
        "part": board.part,
        "timing_met": None,
        "clocks": clocks,
        "resources": found,
        "paths": described(paths),
    }


def row(name: str, one: dict[str, Any], most: Mapping[str, int]) -> list[str]:
    """Return a row of the printed table: numbers, and of a whole design their share of the part."""
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
        bool, typer.Option("--update", help="Renew the rows of docs/boards.md; without --only all of them.")
    ] = False,
    most: Annotated[int, typer.Option(help="Ways to show of each.")] = 3,
    half_width: Annotated[
        bool, typer.Option("--half-width", help="Boards with half-width formats, whatever their Config says.")
    ] = False,
) -> None:
    """Print the resource utilisation of designs in a Xilinx part, and their critical paths."""
    console = Console(highlight=False, soft_wrap=True)
    if half_width and (write or not set(only.split(",")) <= BOARDS.keys()):
        raise typer.BadParameter(f"--half-width needs --only with boards ({', '.join(BOARDS)}), and no --update")
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
        design = board_design(with_half_width(BOARDS[name])) if half_width else DESIGNS[name]
        found[name] = one = count(name, design)
        table.add_row(*row(name, one, available(DESIGNS[name].of)))
        console.print(f"{name}: {one['seconds']} s", style="dim")
        for path in one["paths"][:most]:
            console.print(f"  {path['levels']:3}  {path['clock']}: {path['begin']} -> {path['end']}", markup=False)
        (BUILD / "report.json").write_text(json.dumps(found, indent=1) + "\n")
        if write:  # row by row, since the whole run takes long
            update({name: one}, order=DESIGNS)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

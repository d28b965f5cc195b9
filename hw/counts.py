"""`python -m hw.counts`: what the sum tree takes of an xc7vx690t (NetFPGA-SUME), by Yosys: a synthesis without placement.

LUTs are an upper bound, since vendors' tools put two small ones into one, and include those that are memory. The longest path is counted in LUTs and
carries of four bits between registers, block RAMs and multipliers; how long it takes is not known before it is placed.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import Signal, Value
from amaranth.lib.wiring import Component
from rich.console import Console
from rich.table import Column, Table

from hw.build import for_synthesis, tool
from hw.replay.engine import Engine
from hw.replay.sampler import Sampler
from hw.replay.tree import SumTree
from iswitch.config import Config, Replay

__all__ = ["AVAILABLE", "DESIGNS", "DEVICE", "count", "main", "report"]

BUILD = Path(__file__).parents[1] / "build" / "counts"
DEVICE = "xc7vx690t"
AVAILABLE = {"LUT": 433_200, "FF": 866_400, "RAMB36": 1_470, "DSP": 3_600}
MEMORY_LUTS = {"RAM32X1D": 2, "RAM64X1D": 2, "RAM32M": 4, "RAM64M": 4, "SRL16E": 1, "SRLC32E": 1}

DESIGNS: dict[str, Callable[[], Component]] = {
    "phased-20x18": lambda: SumTree(capacity=1 << 20, priority_bits=18, phased=True),
    "mixed-19x18": lambda: SumTree(capacity=1 << 19, priority_bits=18),
    "phased-20x27": lambda: SumTree(capacity=1 << 20, priority_bits=27, phased=True),
    "mixed-19x27": lambda: SumTree(capacity=1 << 19, priority_bits=27),
    "sampler-19x18": lambda: Sampler(capacity=1 << 19, priority_bits=18),
    "sampler-19x27": lambda: Sampler(capacity=1 << 19, priority_bits=27),
    "phased-sampler-20x18": lambda: Sampler(capacity=1 << 20, priority_bits=18, phased=True),
    "phased-sampler-20x27": lambda: Sampler(capacity=1 << 20, priority_bits=27, phased=True),
    "service-17x27": lambda: Engine(Config(replay=Replay(capacity=1 << 17, priority_bits=27))),
    "service-20x18": lambda: Engine(Config(replay=Replay(capacity=1 << 20, priority_bits=18, phased=True, times_bits=0))),
}
"""Variant, leaves as a power of two, and bits of a priority. A sampler is a tree with histogram and handles, and if it is not phased
with a table of priorities in front. The service is all of it, at 256 bits; of 20 it is phased and does not count draws."""


def count(name: str, part: Component) -> dict[str, Any]:
    """Resources and the longest path of a component. Files are left in `build/counts/<name>`."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    values = (Value.cast(port) for _, _, port in part.signature.flatten(part))
    with for_synthesis():
        text = rtlil_backend.convert(part, name="top", ports=[value for value in values if isinstance(value, Signal)], emit_src=False)
    (folder / "top.il").write_text(text)
    tool("yosys", ["-q", "-l", "yosys.log", "-p",
                   "read_rtlil top.il; synth_xilinx -family xc7 -top top -flatten -noiopad; tee -q -o stat.json stat -json; "
                   "select -set logic t:LUT* t:CARRY4 t:MUXF* t:INV w:*; tee -q -o path.txt ltp @logic"], folder)
    cells = json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"]
    return report(cells, (folder / "path.txt").read_text()) | {"seconds": round(time.monotonic() - begun)}


def report(cells: dict[str, int], path: str) -> dict[str, Any]:
    """What Yosys says, in our words."""
    total = lambda pattern: sum(number for name, number in cells.items() if re.fullmatch(pattern, name))
    steps = re.findall(r"\(via (.*)\)", path)
    carries = sum(step.endswith("carry4") for step in steps)
    return {
        "LUT": total(r"LUT\d") + sum(luts * cells.get(name, 0) for name, luts in MEMORY_LUTS.items()), "FF": total(r"FD[RSCP]E(_1)?"),
        "RAMB36": total("RAMB36E1"), "RAMB18": total("RAMB18E1"), "DSP": total("DSP48E1"),
        "path": {"LUT": len(steps) - carries, "carry": carries},
    }


def main(only: Annotated[str, typer.Option(help="Only this design.")] = "") -> None:
    """What the sum tree takes of an xc7vx690t."""
    console = Console()
    if only and only not in DESIGNS:
        raise typer.BadParameter(f"there is no {only!r}; there are {', '.join(DESIGNS)}")
    found: dict[str, dict[str, Any]] = {}
    table = Table(Column("", no_wrap=True), "LUT", "FF", "RAMB36", "RAMB18", "of all", "DSP", "path")
    for name in [only] if only else DESIGNS:
        found[name] = one = count(name, DESIGNS[name]())
        share = (one["RAMB36"] + one["RAMB18"] / 2) / AVAILABLE["RAMB36"]
        table.add_row(name, f"{one['LUT']:,}", f"{one['FF']:,}", f"{one['RAMB36']:,}", f"{one['RAMB18']:,}", f"{share:.1%}", str(one["DSP"]),
                      f"{one['path']['LUT']} + {one['path']['carry']}")
        console.print(f"[dim]{name}: {one['seconds']} s", highlight=False)
        (BUILD / "report.json").write_text(json.dumps({"device": DEVICE, "available": AVAILABLE, "designs": found}, indent=1) + "\n")
    console.print(table)
    console.print("of all: block RAM; path: LUTs and carries in the longest", highlight=False)


if __name__ == "__main__":
    typer.run(main)

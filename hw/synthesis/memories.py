"""`python -m hw.synthesis.memories`: the memory of a switch as its jobs, their members and the window grow.

Bits are counted in the netlist that Yosys reads: each memory's width times its depth. Block RAMs are larger, since they
have fixed sizes.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hw.synthesis.emit import rtlil
from iswitch.config import Config

__all__ = ["PARTS", "SIZES", "memory_bits"]

PARTS = {
    "sums": r"\.aggregator\.accumulator$",
    "results that wait to leave": r"\.waiting_results(\.|$)",
    "rows of slots": r"\.core\.tables\.slot",
    "rows of jobs and members": r"\.core\.tables\.",
    "MAC table": r"\.core\.forwarder\.",
    "queues of the ports": r"\.(queue|output)_\d+(\.|$)",
    "the rest": "",
}
"""Parts of the switch and the modules that they are: the first pattern that fits."""
SIZES = [
    *({"jobs": jobs} for jobs in (2, 4, 8, 16)),
    *({"members": members} for members in (16, 32)),
    *({"window": window} for window in (32, 128)),
]
"""What differs from the default switch."""


def memory_bits(config: Config) -> Counter[str]:
    """Return the bits of the memories of each of `PARTS`."""
    bits: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
    part = ""
    for line in rtlil(config).splitlines():
        if module := re.match(r"module (\S+)", line):
            part = next(name for name, pattern in PARTS.items() if re.search(pattern, module[1]))
        elif memory := re.match(r"\s*memory width (\d+) size (\d+) ", line):
            bits[part] += int(memory[1]) * int(memory[2])
    return bits


def table_of(rows: Iterable[tuple[Config, Counter[str]]]) -> Table:
    """Return a table of Kibit by part, a row for each switch."""
    table = Table("jobs", "members", "window", *PARTS, "all, Mibit", show_edge=False)
    for config, bits in rows:
        sizes = (config.jobs, config.members, config.window)
        cells = (f"{bits[part] / 1024:,.0f}" for part in PARTS)
        table.add_row(*map(str, sizes), *cells, f"{bits.total() / 1024**2:.1f}")
    return table


def main(
    jobs: Annotated[int | None, typer.Option(help="Only a switch with so many jobs.")] = None,
    members: Annotated[int, typer.Option(help="... and so many members of a job.")] = Config.members,
    window: Annotated[int, typer.Option(help="... and such a window.")] = Config.window,
) -> None:
    """Print the memory of switches in Kibit, part by part. The other sizes are those of the default switch."""
    sizes = SIZES if jobs is None else [{"jobs": jobs, "members": members, "window": window}]
    configs = [replace(Config(), **size) for size in sizes]
    console = Console(width=140, highlight=False)
    named = track(configs, "emitting", console=Console(stderr=True), transient=True)
    console.print(table_of((config, memory_bits(config)) for config in named))


if __name__ == "__main__":
    typer.run(main)

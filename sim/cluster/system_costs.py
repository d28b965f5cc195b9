"""`python -m sim.cluster.system_costs`: the hosts' costs of all systems, measured in the same turn on one machine.

Each turn measures, for each vector of the iSwitch paper, one after another at real-time priority: TCP with messages as
long as each system sends, sums and updates of the vector, and the driver's calls, bursts and datagrams with segments of
the default gateware. Two processes are busy each time: the two ends of a connection, or a worker and the software
switch. `--out` keeps all turns. `python -m sim.cluster.headline --costs` compares the systems with them.
"""

import json
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.collectives import PIECE_BYTES
from iswitch.estimate.costs import MEASURED, SOURCES, Costs
from iswitch.estimate.systems import ISWITCH
from sim.cluster.driver_costs import measure_driver
from sim.cluster.host_costs import measure_sums, measure_tcp
from sim.cluster.measured_record import rounded

__all__ = ["ASYNCHRONOUS_SERVER", "RECORD", "Measured", "costs_of", "medians", "message_bytes", "read"]

RECORD = Path(__file__).parents[2] / "docs" / "cluster_costs.json"
SIZES = (40_020, 157_520, 3_310_000, 6_410_000)
WORKERS = 4
COSTS = {name for name, source in SOURCES.items() if source == MEASURED}
"""Names of the costs of every system."""
ASYNCHRONOUS_SERVER = "asynchronous server"
PARTS: dict[str, Callable[[int], int]] = {
    "parameter server": lambda size: size,
    "streaming server": lambda size: min(PIECE_BYTES, size),
    "sharded server": lambda size: size // WORKERS,
    "ring": lambda size: size // WORKERS,
    "tree of workers": lambda size: size // 2,
    ISWITCH: lambda size: size,
    ASYNCHRONOUS_SERVER: lambda size: size,
}
"""What a worker of each system sends at once, with four workers. A tree's second message is half as long. Servers hold
four whole vectors, all others the parts of one."""


class Measured(NamedTuple):
    """One turn's costs for a vector.

    Parameters
    ----------
    size_bytes : int
        Size of the vector.
    load : float
        Processes that ran or waited for a core in the minute before, on average.
    tcp : dict
        Costs of TCP by the bytes of a message, as text.
    sums, driver : dict
        Costs of sums and updates, and of the driver.
    """

    size_bytes: int
    load: float
    tcp: dict[str, dict[str, float]]
    sums: dict[str, float]
    driver: dict[str, float]

    def costs(self, system: str) -> dict[str, float]:
        """Return the costs by name for a system."""
        return self.tcp[str(message_bytes(system, self.size_bytes))] | self.sums | self.driver


def message_bytes(system: str, size_bytes: int) -> int:
    """Return the bytes of what a worker of a system sends at once."""
    return PARTS[system](size_bytes)


def buffers(length: int, size_bytes: int) -> int:
    """Return the number of buffers for messages of a length."""
    return WORKERS if length == size_bytes else size_bytes // length


def measure_turn(size_bytes: int, *, realtime: bool) -> Measured:
    """Measure all costs for a vector."""
    load = os.getloadavg()[0]
    lengths = sorted({message_bytes(system, size_bytes) for system in PARTS})
    tcp = {
        str(length): measure_tcp(length, buffers=buffers(length, size_bytes), realtime=realtime) for length in lengths
    }
    sums, driver = measure_sums(size_bytes, realtime=realtime), measure_driver(size_bytes, realtime=realtime).driver
    return Measured(size_bytes, load, tcp, sums, driver)


def read(path: Path = RECORD, sizes: Iterable[int] = ()) -> list[Measured]:
    """Return the turns of a file.

    Parameters
    ----------
    path : pathlib.Path
        What `--out` has written.
    sizes : iterable of int
        Bytes of vectors that must be in the file. A run that was stopped has perhaps not measured all.

    Raises
    ------
    typer.BadParameter
        If the file has no turn, or if a size or a cost of a system is missing.
    """
    try:
        rows = [Measured(**row) for row in json.loads(path.read_text())]
        missing = {f"{size:,} bytes" for size in sizes} - {f"{row.size_bytes:,} bytes" for row in rows}
        for row in rows:
            float(row.load)
            for system in PARTS:
                missing |= COSTS - row.costs(system).keys()
                Costs.from_dict(row.costs(system))  # which checks the values
        if missing or not rows:
            raise ValueError(f"there is no {', '.join(sorted(missing)) or 'turn'}")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise typer.BadParameter(
            f"{path} has not all costs of all systems ({type(error).__name__}: {error}): "
            "`python -m sim.cluster.system_costs --out FILE` writes such a file"
        ) from None
    return rows


def medians(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the median of each cost."""
    found = list(rows)
    return {name: statistics.median(row[name] for row in found) for name in found[0]}


def costs_of(rows: Iterable[Measured], size_bytes: int, system: str) -> Costs:
    """Return the costs of a system with a vector: the median of each over the turns."""
    return Costs.from_dict(medians(row.costs(system) for row in rows if row.size_bytes == size_bytes))


def show(console: Console, rows: list[Measured]) -> None:
    """Print the medians."""
    for size_bytes in dict.fromkeys(row.size_bytes for row in rows):
        cell = [row for row in rows if row.size_bytes == size_bytes]
        names = [*cell[0].costs(ISWITCH)]
        loads = f"{min(row.load for row in cell):.1f} to {max(row.load for row in cell):.1f}"
        table = Table("system", *names, title=f"{size_bytes / 1e3:g} KB, {len(cell)} turns, load {loads}")
        for system in PARTS:
            values = medians(row.costs(system) for row in cell)
            table.add_row(system, *(f"{values[name]:.3g}" for name in names))
        console.print(table)


def main(
    turns: Annotated[int, typer.Option(min=1, help="Measurements of each cost; the median counts.")] = 5,
    realtime: Annotated[bool, typer.Option(help="Run before all other programs. Only root may.")] = True,
    out: Annotated[Path | None, typer.Option(help="A file to write the costs of all turns into.")] = None,
    shown: Annotated[
        Path | None,
        typer.Option("--show", exists=True, dir_okay=False, help="Print the table of a file, and measure nothing."),
    ] = None,
) -> None:
    """Measure the costs of all systems, turn by turn."""
    console, found = Console(width=190, highlight=False), []
    if shown:
        show(console, read(shown))
        return
    for turn in range(turns):
        for size_bytes in SIZES:
            found.append(measure_turn(size_bytes, realtime=realtime))
            console.print(f"[dim]{turn} {size_bytes}: load {found[-1].load:.1f}")
            if out:
                out.write_text(json.dumps([rounded(row._asdict()) for row in found], indent=1) + "\n")
    show(console, found)


if __name__ == "__main__":
    typer.run(main)

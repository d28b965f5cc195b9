"""`python -m sim.bench.cluster_agreement`: the models of server and ring beside the real ones, over loopback.

The model has all processes on the cores of one machine, without cables: it is the model of the clusters with other
numbers. The real systems are those of `sim/bench/compare_systems.py` between processes, with sums that are checked.
Costs and real systems take turns, and both run at real-time priority, so other programs disturb them less. Costs are
those of messages as long as those that the system sends. No cost is fitted to a measured sum. The ratio is modelled by
measured time.

`--out docs/cluster_agreement.json` keeps costs and times of all turns, and `--show` prints the table of such a file.
"""

import json
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.collectives import ring
from iswitch.estimate.costs import Costs
from iswitch.estimate.server import parameter_server
from iswitch.estimate.setting import Phases, Setting
from sim.bench.compare import measure as measure_system
from sim.cluster.host_costs import measure_copy_s, measure_sums, measure_tcp

__all__ = ["MODELS", "RECORD", "SIZES", "Turn", "medians", "read", "spread"]

RECORD = Path(__file__).parents[2] / "docs" / "cluster_agreement.json"
SIZES = {"PPO": 40_020, "DDPG": 157_520, "A2C": 3_310_000, "DQN": 6_410_000}
WORLDS = (2, 4)
MODELS: dict[str, Callable[[Setting], Phases]] = {
    "tcp_server": lambda setting: parameter_server(setting, eager=False, update=False),
    "tcp_ring": lambda setting: ring(setting, piece_bytes=None, update=False),
}
"""The models of the systems that `sim/bench/compare_systems.py` runs, by their names there."""


class Turn(NamedTuple):
    """One measurement of a sum, with the costs that were measured just before it.

    Parameters
    ----------
    system, workers, size_bytes
        What was measured.
    copy_s : float
        Processor time in which a worker prepares its vector, a copy.
    measured_s : float
        Median of the calls.
    costs : dict
        Costs by name.
    cores : int
        Cores of the machine.
    """

    system: str
    workers: int
    size_bytes: int
    copy_s: float
    measured_s: float
    costs: dict[str, float]
    cores: int

    @property
    def modelled_s(self) -> float:
        """Seconds of a sum by the model. A worker's own preparation does not count, but that of others delays it."""
        setting = Setting(
            size_bytes=self.size_bytes,
            workers=self.workers,
            compute_s=self.copy_s,
            rate_bps=None,
            cores=self.cores,
            costs=Costs.from_dict(self.costs),
        )
        return MODELS[self.system](setting).communication_s

    @property
    def ratio(self) -> float:
        """Modelled by measured time."""
        return self.modelled_s / self.measured_s


def message_bytes(system: str, workers: int, size_bytes: int) -> int:
    """Return the bytes of what a worker sends at once."""
    return size_bytes // workers if system == "tcp_ring" else size_bytes


def measure_turn(system: str, workers: int, size_bytes: int, *, realtime: bool) -> Turn:
    """Measure the costs, and the real system after them."""
    costs = measure_tcp(message_bytes(system, workers, size_bytes), realtime=realtime)
    costs |= measure_sums(size_bytes, realtime=realtime)
    copy_s = measure_copy_s(size_bytes, realtime=realtime)
    repetitions = max(16, min(200, 100_000_000 // size_bytes))
    timing = measure_system(system, size_bytes, workers, repetitions=repetitions, realtime=realtime)
    return Turn(system, workers, size_bytes, copy_s, timing.ms / 1e3, costs, os.cpu_count() or 1)


def read(path: Path = RECORD) -> list[Turn]:
    """Return the turns of a file."""
    return [Turn(**row) for row in json.loads(path.read_text())]


def medians(turns: Iterable[Turn]) -> dict[tuple[str, int, int], float]:
    """Return the median ratio of each system, number of workers, and size."""
    ratios: dict[tuple[str, int, int], list[float]] = {}
    for turn in turns:
        ratios.setdefault(turn[:3], []).append(turn.ratio)
    return {key: statistics.median(found) for key, found in ratios.items()}


def spread(ratios: Iterable[float]) -> tuple[float, float, float]:
    """Return the least, the median and the largest ratio."""
    found = sorted(ratios)
    return found[0], statistics.median(found), found[-1]


def show(console: Console, turns: list[Turn]) -> None:
    """Print the medians."""
    table = Table("system", "workers", "size", "modelled ms", "measured ms", "ratio", "of turns")
    names = {size: name for name, size in SIZES.items()}
    for key, ratio in medians(turns).items():
        cell = [turn for turn in turns if turn[:3] == key]
        modelled, measured = (1e3 * statistics.median(getattr(turn, name) for turn in cell) for name in TIMES)
        least, _, most = spread(turn.ratio for turn in cell)
        shown = (f"{modelled:.3g}", f"{measured:.3g}", f"{ratio:.2f}", f"{least:.2f} to {most:.2f}")
        table.add_row(key[0], str(key[1]), names[key[2]], *shown)
    console.print(table)
    for system in MODELS:
        least, middle, most = spread(ratio for key, ratio in medians(turns).items() if key[0] == system)
        console.print(f"{system}: modelled by measured {least:.2f} to {most:.2f}, median {middle:.2f}", highlight=False)


TIMES = ("modelled_s", "measured_s")


def main(
    turns: Annotated[int, typer.Option(min=1, help="Measurements of each sum; the median counts.")] = 5,
    realtime: Annotated[bool, typer.Option(help="Run before all other programs. Only root may.")] = True,
    out: Annotated[Path | None, typer.Option(help="A file to write costs and times into.")] = None,
    shown: Annotated[
        Path | None, typer.Option("--show", help="Print the table of a file, and measure nothing.")
    ] = None,
) -> None:
    """Compare the models with real processes on this machine."""
    console, found = Console(width=100), []
    if shown:
        show(console, read(shown))
        return
    for turn in range(turns):
        for size_bytes in SIZES.values():
            for system in MODELS:
                for workers in WORLDS:
                    one = measure_turn(system, workers, size_bytes, realtime=realtime)
                    found.append(one)
                    console.print(f"[dim]{turn} {system} {workers} {size_bytes}: {one.ratio:.2f}", highlight=False)
                    if out:
                        out.write_text(json.dumps([plain(row) for row in found], indent=1) + "\n")
    show(console, found)


def plain(turn: Turn) -> dict[str, Any]:
    """Return a turn with four digits of each time and cost."""
    row = turn._asdict()
    for name in ("copy_s", "measured_s"):
        row[name] = float(f"{row[name]:.4g}")
    return row | {"costs": {name: float(f"{value:.4g}") for name, value in turn.costs.items()}}


if __name__ == "__main__":
    typer.run(main)

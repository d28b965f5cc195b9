"""`python -m sim.bench.cluster_agreement`: the models of server and ring beside the real ones, over loopback.

The costs of this machine are measured first. The model then has all processes on the cores of one machine, without
cables: it is the model of the clusters with other numbers. The real systems are those of `sim/bench/compare_systems.py`
between processes, with sums that are checked. The ratio is modelled by measured time.
"""

import os
import statistics
from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.collectives import ring
from iswitch.estimate.costs import Costs
from iswitch.estimate.server import parameter_server
from iswitch.estimate.setting import Phases, Setting
from sim.bench.compare import measure as measure_system
from sim.cluster.host_costs import measure as measure_costs

__all__ = ["MODELS", "SIZES", "Agreement", "modelled_s", "spread"]

SIZES = {"PPO": 40_020, "DDPG": 157_520, "A2C": 3_310_000, "DQN": 6_410_000}
WORLDS = (2, 4)
MODELS: dict[str, Callable[[Setting], Phases]] = {
    "tcp_server": lambda setting: parameter_server(setting, eager=False, update=False),
    "tcp_ring": lambda setting: ring(setting, piece_bytes=None, update=False),
    "gloo": lambda setting: ring(setting, update=False),
}
"""The models of the systems that `sim/bench/compare_systems.py` runs, by their names there. Gloo is held to a ring."""


class Agreement(NamedTuple):
    """Seconds of one sum by a model, and measured here."""

    system: str
    workers: int
    size_bytes: int
    modelled_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Modelled by measured time."""
        return self.modelled_s / self.measured_s


def modelled_s(system: str, workers: int, size_bytes: int, costs: Costs, cores: int) -> float:
    """Return the seconds of a sum on one machine of so many cores."""
    setting = Setting(size_bytes=size_bytes, workers=workers, rate_bps=None, cores=cores, costs=costs)
    return MODELS[system](setting).total_s


def spread(found: list[Agreement]) -> tuple[float, float, float]:
    """Return the least, the median and the largest ratio."""
    ratios = [one.ratio for one in found]
    return min(ratios), statistics.median(ratios), max(ratios)


def main(turns: Annotated[int, typer.Option(min=1, help="Measurements of each sum; the median counts.")] = 3) -> None:
    """Compare the models with real processes on this machine."""
    cores, console = os.cpu_count() or 1, Console(width=100)
    costs = measure_costs()
    console.print(f"{cores} cores; {costs}", highlight=False)
    found: list[Agreement] = []
    table = Table("system", "workers", "size", "modelled ms", "measured ms", "ratio")
    for system in MODELS:
        for workers in WORLDS:
            for name, size in SIZES.items():
                repetitions = max(8, min(200, 40_000_000 // size))
                measured = statistics.median(
                    measure_system(system, size, workers, repetitions=repetitions).ms for _ in range(turns)
                )
                model = modelled_s(system, workers, size, costs, cores)
                found.append(Agreement(system, workers, size, model, measured / 1e3))
                row = found[-1]
                table.add_row(
                    system, str(workers), name, f"{1e3 * row.modelled_s:.3g}", f"{measured:.3g}", f"{row.ratio:.2f}"
                )
                console.print(f"[dim]{system} {workers} {name}: {row.ratio:.2f}", highlight=False)
    console.print(table)
    for system in MODELS:
        least, middle, most = spread([one for one in found if one.system == system])
        console.print(f"{system}: modelled by measured {least:.2f} to {most:.2f}, median {middle:.2f}", highlight=False)


if __name__ == "__main__":
    typer.run(main)

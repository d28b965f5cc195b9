"""Figures 11 to 16: the simulated fat tree and leaf-spine network; and two that the paper does not have.

Figures 17 and 18 show the rate over the capacity of the switches and over the rate of the ps.
"""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import NamedTuple

from iswitch.plan.figures.chart import Figure, Panel
from iswitch.plan.figures.fabrics import CAPACITY_GBPS, FABRICS, LINK_GBPS, SMALL_FABRICS, Fabric, make_topology
from iswitch.plan.figures.outcomes import PROGRAM, Outcome, run_schemes
from iswitch.plan.figures.published import ATP, GERYON, GRID, GRID_OVER_ATP, WORKER_COUNTS, bars

__all__ = ["SIMULATED_FIGURES", "Simulation", "Simulations"]

_RATES = {"rate_gbps": "sending rate", "switches_gbps": "rate of the switches", "server_gbps": "rate of the ps"}
"""What bars show, by the field of `Outcome`."""
_SHOWN = {
    11: ("rate_gbps", False),
    12: ("rate_gbps", True),
    13: ("switches_gbps", False),
    14: ("switches_gbps", True),
    15: ("server_gbps", False),
    16: ("server_gbps", True),
}
"""What the paper's figures show, and their scenario: (a), the switches of racks aggregate, or (b), a random fifth of
all."""
_CAPACITY, _SERVER = 17, 18
SIMULATED_FIGURES = (*_SHOWN, _CAPACITY, _SERVER)
DRAWS, TIME_S = 3, 5.0
"""Draws of the capacities, whose mean is shown, and seconds for each search."""
CAPACITIES_GBPS, SERVERS_GBPS = (100, 200, 400, 800, 1600, 3200), (50, 100, 200, 400)
SWEPT_WORKERS = 60


class Simulation(NamedTuple):
    """The settings of one search: a network, its workers, the scenario, the draw, and what is swept."""

    fabric: Fabric
    workers: int
    chosen: bool = False
    seed: int = 1
    capacity_gbps: tuple[float, float] = CAPACITY_GBPS
    server_gbps: float = LINK_GBPS


class Simulations:
    """Runs each simulation once, for all figures that show it.

    Parameters
    ----------
    small : bool
        Simulate networks of a few switches, for a test.
    on_run : callable
        Called before each simulation that runs.
    """

    def __init__(self, *, small: bool = False, on_run: Callable[[Simulation], object] = lambda simulation: None):
        self.fabrics = SMALL_FABRICS if small else FABRICS
        self.counts = {kind: (4, 8) if small else counts for kind, counts in WORKER_COUNTS.items()}
        self.draws, self.time_s = (1, 0.2) if small else (DRAWS, TIME_S)
        self.swept_workers = 4 if small else SWEPT_WORKERS
        self.is_small, self._on_run = small, on_run
        self._known: dict[Simulation, dict[str, Outcome]] = {}

    def wanted(self, number: int) -> list[Simulation]:
        """Return the simulations of a figure."""
        if number not in _SHOWN:
            return [each for _, row in self._swept(number) for each in row]
        chosen = _SHOWN[number][1]
        return [
            each
            for fabric in self.fabrics
            for count in self.counts[fabric.kind]
            for each in self._drawn(fabric, count, chosen)
        ]

    def make(self, number: int) -> Figure:
        """Return a figure."""
        if number not in _SHOWN:
            places, rows = zip(*self._swept(number))
            axis = "capacity of each switch, Gb/s" if number == _CAPACITY else "Gb/s that the ps takes"
            title = f"fat-tree, {self.swept_workers} workers, (a)"
            panels = [Panel(title, axis, places, self._values(rows, lambda outcome: outcome.rate_gbps), {})]
            return Figure(number, _RATES["rate_gbps"], "Gb/s", panels)
        field, chosen = _SHOWN[number]
        scenario = "(b)" if chosen else "(a)"
        panels = []
        for fabric in self.fabrics:
            counts = self.counts[fabric.kind]
            values = self._values(
                [self._drawn(fabric, count, chosen) for count in counts], lambda outcome: getattr(outcome, field)
            )
            if field != "rate_gbps":
                del values[PROGRAM]
            if field == "switches_gbps":
                del values[GERYON]
            published = {} if self.is_small else bars(number, fabric.kind)
            panels.append(Panel(f"{fabric.kind}, {scenario}", "workers", counts, values, published))
        return Figure(number, _RATES[field], "Gb/s", panels, self._notes(number, panels))

    def _drawn(self, fabric: Fabric, workers: int, chosen: bool) -> list[Simulation]:
        return [Simulation(fabric, workers, chosen, seed) for seed in range(1, self.draws + 1)]

    def _swept(self, number: int) -> list[tuple[int, list[Simulation]]]:
        base = Simulation(self.fabrics[0], self.swept_workers)
        if number == _CAPACITY:
            capacities = CAPACITIES_GBPS[::3] if self.is_small else CAPACITIES_GBPS
            return [(gbps, [base._replace(capacity_gbps=(gbps, gbps))]) for gbps in capacities]
        return [(gbps, [base._replace(server_gbps=gbps)]) for gbps in SERVERS_GBPS]

    def _values(self, rows: Sequence[Sequence[Simulation]], pick: Callable[[Outcome], float]) -> dict[str, list[float]]:
        """Return the mean of the draws, a list by scheme with a value for each row."""
        found: dict[str, list[float]] = {}
        for row in rows:
            outcomes = [self._run(each) for each in row]
            for scheme in outcomes[0]:
                found.setdefault(scheme, []).append(mean(pick(outcome[scheme]) for outcome in outcomes))
        return found

    def _run(self, simulation: Simulation) -> dict[str, Outcome]:
        if simulation not in self._known:
            self._on_run(simulation)
            topology = make_topology(**simulation._asdict())
            self._known[simulation] = run_schemes(topology, seed=simulation.seed, time_s=self.time_s)
        return self._known[simulation]

    def _notes(self, number: int, panels: Sequence[Panel]) -> list[str]:
        if number != 11:
            return []
        values, workers, fabric = panels[0].values, panels[0].places[0], self.fabrics[0]
        racks = -(-int(str(workers)) // fabric.workers)
        ratio, paper = values[GRID][0] / values[ATP][0], bars(number, fabric.kind)[ATP][0]
        return [
            f"GRID over ATP with {workers} workers on the fat tree: {ratio:.2f} here, {GRID_OVER_ATP} in the paper. "
            f"Here {racks} racks send a sum each to a ps that takes {LINK_GBPS:g} Gb/s, so ATP cannot exceed "
            f"{LINK_GBPS / racks:.3g}; the paper's bar of {paper:.3g} with 40 workers needs at most "
            f"{LINK_GBPS / paper:.3g} sums."
        ]

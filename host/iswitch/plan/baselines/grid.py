"""GRID's algorithm as a baseline: its linear program without links, randomised rounding, and a repair.

Fang, Zhao, Xu, Wu, Yao: GRID, IEEE/ACM Transactions on Networking 31(5), 2023. The program maximises the rate that all
workers reach. Each worker splits its gradient over aggregation nodes, and a switch's sum is as fast as the fastest part
that it sums. Capacities of switches and of the ps are constraints, links are not. Each worker then chooses one node at
random, with its parts as probabilities. Such a rounding keeps the rate and exceeds capacities, so the rate is lowered
here until everything fits, links included. How much a rounding exceeds a switch's capacity is bounded: with high
probability by the factor ln |S| / v + 3 for S switches, where v is the least capacity as a part of what all workers
could send (unverified: inferred from two factors that follow from the paper's figures).
"""

import math
import random
import statistics
from collections import Counter

import numpy as np
import numpy.typing as npt

from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["capacity_factor", "plan_like_grid", "solve_relaxation"]

SEEDS = 20
"""Runs of the algorithm, each with a seed of its own."""
ROUNDINGS = 200
"""Roundings of each run."""
REPAIRED = 4
"""How many of the best different roundings of a run are repaired."""
MOVES_MAX = 200
ROUNDED = 1e-9


def solve_relaxation(nearest: NearestTrees, time_s: float = INFINITY) -> tuple[float, list[dict[str, float]]]:
    """Solve GRID's linear program.

    A worker sends at most what its cables carry, and the ps takes at most what its cables carry.

    Parameters
    ----------
    nearest : NearestTrees
        The paths of a topology with a ps.
    time_s : float
        Time limit in seconds.

    Returns
    -------
    rate : float
        Gb/s of each worker that the program promises.
    parts : list of dict of str to float
        For each group of workers the Gb/s that each aggregation node sums.

    Raises
    ------
    TopologyError
        If the program was not solved in time.
    """
    topology = nearest.topology
    job, groups = topology.job, topology.groups()
    ends = [*nearest.sites, nearest.ps]
    program = LinearProgram()
    rate = program.add_variable(cost=-1.0)
    sums = {switch: program.add_variable() for switch in nearest.sites}
    parts = []
    for group in groups:
        nic = group.nic_gbps or sum(topology.free_gbps(group.at, to) for to in topology.graph[group.at])
        most = nic / job.gradient_size
        part = {end: program.add_variable() for end in ends}
        parts.append(part)
        # The shares of the nodes, at most 1 together, are parts of the most that the worker can send.
        program.add_row(dict.fromkeys(part.values(), 1.0), -INFINITY, most)
        for end in ends:
            if end in sums:
                program.add_row({part[end]: 1.0, sums[end]: -1.0}, -INFINITY, 0)
        program.add_row(dict.fromkeys(part.values(), 1.0) | {rate: -1.0}, 0, INFINITY)
    streams = lambda end: {part[end]: len(group.workers) * job.gradient_size for group, part in zip(groups, parts)}
    for switch, site in nearest.sites.items():
        program.add_row(streams(switch), -INFINITY, site.capacity_gbps)
    ingress = topology.graph.nodes[nearest.ps].get("ingress_gbps", INFINITY)
    cables = sum(topology.free_gbps(near, nearest.ps) for near in topology.graph[nearest.ps])
    partial_sums = {variable: job.partial_size for variable in sums.values()}
    program.add_row(streams(nearest.ps) | partial_sums, -INFINITY, min(ingress, cables))
    solution = program.solve(time_s=time_s)
    found = solution.values
    if solution.status != "optimal":
        raise TopologyError(f"GRID's linear program was not solved within {time_s:.3g} s: raise --seconds")
    return found[rate], [{end: found[variable] for end, variable in part.items()} for part in parts]


def capacity_factor(topology: Topology) -> float:
    """Return by which factor a rounding exceeds a switch's capacity at most, with high probability."""
    capacities_gbps = [topology.graph.nodes[switch]["capacity_gbps"] for switch in topology.aggregators]
    if not capacities_gbps:
        return 1.0
    fastest = max(
        group.nic_gbps or sum(topology.free_gbps(group.at, near) for near in topology.graph[group.at])
        for group in topology.groups()
    )
    return math.log(len(capacities_gbps)) * len(topology.workers) * fastest / min(capacities_gbps) + 3


def plan_like_grid(topology: Topology, *, seeds: int = SEEDS, time_s: float = 60.0) -> Plan:
    """Return the best plan of several runs, each the best of `ROUNDINGS` roundings, repaired by moving workers.

    The plan's note has the rate that the linear program promises, and the median and the best of the runs. After
    `time_s` seconds, rounding and repair end with the best plan so far.
    """
    clock, nearest = Clock(time_s), NearestTrees(topology)
    promised, parts = solve_relaxation(nearest, max(clock.left, 1e-3))
    runs: list[tuple[float, float, dict[str, str]]] = []
    median: list[float] = []
    known: dict[tuple[str, ...], float] = {}
    repaired: dict[tuple[str, ...], tuple[float, dict[str, str]]] = {}
    repair = _Repair(nearest, clock)
    for seed in range(1, seeds + 1):
        if runs and not clock.left:
            break
        rng = random.Random(seed)
        rounded: dict[tuple[str, ...], dict[str, str]] = {}
        for _ in range(ROUNDINGS):
            if rounded and not clock.left:
                break
            homes: dict[str, str] = {}
            for group, part in zip(topology.groups(), parts):
                weights = [max(value, 0.0) for value in part.values()]
                homes |= dict(zip(group.workers, rng.choices(list(part), weights, k=len(group.workers))))
            key = tuple(homes.values())
            if key not in known:
                counts = nearest.count(homes)
                known[key] = nearest.rate(nearest.loads(counts)) if nearest.has_room(counts) else 0.0
            rounded[key] = homes
            median.append(known[key])
        best = sorted((key for key in rounded if known[key]), key=lambda key: -known[key])[:REPAIRED]
        candidates = [rounded[key] for key in best] or [dict.fromkeys(topology.workers, nearest.ps)]
        for homes in candidates:
            key = tuple(homes.values())
            if key not in repaired:
                repaired[key] = repair.improve(homes)
        done = max((repaired[tuple(homes.values())] for homes in candidates), key=lambda each: each[0])
        runs.append((done[0], max((known[key] for key in best), default=0.0), done[1]))
    rate = max(run[0] for run in runs)
    trees = nearest.trees(next(run[2] for run in runs if run[0] == rate))
    note = (
        f"its program, without links, promises {promised:.4g}; unrepaired, its roundings give "
        f"{statistics.median(median):.4g} (median of {len(median)}; best {max(run[1] for run in runs):.4g}); "
        f"repaired, its runs give {statistics.median(run[0] for run in runs):.4g} "
        f"(median of {len(runs)}; best {rate:.4g}); "
        f"a rounding may exceed a switch's capacity {capacity_factor(topology):.3g} times"
    )
    return Plan(
        scheme="GRID, repaired",
        trees=trees,
        bound_gbps=INFINITY,
        shadow_prices=find_shadow_prices(topology, trees),
        seconds=clock.seconds,
        note=note,
    )


class _Repair:
    """Moves workers to other switches as long as that helps and there is time."""

    def __init__(self, nearest: NearestTrees, clock: Clock):
        self.nearest, self.clock = nearest, clock
        self.available = nearest.gbps + 1e-12

    def _fill_levels(self, load: npt.NDArray[np.float64], most: float) -> list[float]:
        """Return loads as parts of the capacities, the fullest first, rounded to make ties equal.

        If the fullest resource is above `most`, that alone is returned.
        """
        parts = load / self.available
        fullest = float(parts.max())
        found: list[float] = [fullest] if fullest > most + ROUNDED else (-np.sort(-parts)).round(9).tolist()
        return found

    def _moved(
        self, load: npt.NDArray[np.float64], members: Counter[str], at: str, home: str, place: str, moved: int
    ) -> npt.NDArray[np.float64]:
        """Return the loads after some workers that start at a node have another home."""
        nearest, after = self.nearest, load.copy()
        for end, number in ((home, -moved), (place, moved)):
            stream = nearest.gradient(at, end)
            after[stream.places] += number * stream.sizes
            if end != nearest.ps and (members[end] == 0 or members[end] + number == 0):
                own = nearest.partial_sum(end, nearest.ps)
                after[own.places] += (1 if number > 0 else -1) * own.sizes
        return after

    def improve(self, homes: dict[str, str]) -> tuple[float, dict[str, str]]:
        """Return the rate and the homes after the best moves, one after another.

        A move takes one worker, or all workers of a switch with one home, to another home. It is an improvement if the
        fullest resource gets emptier, or stays and the next fullest one does.
        """
        nearest = self.nearest
        counts = nearest.count(homes)
        value = self._fill_levels(nearest.loads(counts), INFINITY)
        for _ in range(MOVES_MAX):
            best, load, members = None, nearest.loads(counts), Counter[str]()
            for (_, home), number in counts.items():
                members[home] += number
            for (at, home), number in counts.items():
                for place in (*nearest.sites, nearest.ps):
                    if not self.clock.left:
                        break
                    for moved in {1, number} if place != home and number else ():
                        levels = self._fill_levels(self._moved(load, members, at, home, place, moved), value[0])
                        if levels < value:
                            after = counts + Counter({(at, place): moved})
                            after[at, home] -= moved
                            if nearest.has_room(after):
                                best, value = after, levels
            if best is None:
                break
            counts = +best
        workers = nearest.topology.workers
        waiting = {at: [worker for worker in workers if nearest.start[worker] == at] for at in nearest.start.values()}
        found = {waiting[at].pop(0): home for at, home in sorted(counts.elements())}
        return nearest.rate(nearest.loads(counts)), {worker: found[worker] for worker in workers}

"""GRID's algorithm as a baseline: its linear program without links, randomised rounding, and a repair.

Fang, Zhao, Xu, Wu, Yao: GRID, IEEE/ACM Transactions on Networking 31(5), 2023. The program maximises the rate that all
workers reach. Each worker splits its gradient over aggregation nodes, and a switch's sum is as fast as the fastest part
that it sums. Capacities of switches and of the ps are constraints, links are not. Each worker then chooses one node at
random, with its parts as probabilities. Such a rounding keeps the rate and exceeds capacities, so the rate is lowered
here until everything fits, links included.
"""

import random
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.tree import Plan, Resource, Tree, capacities, loads
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["plan_like_grid", "solve_relaxation"]

ROUNDINGS = 200
REPAIRED = 4
"""How many of the best different roundings are repaired."""
MOVES_MAX = 200


def solve_relaxation(topology: Topology, time_s: float = INFINITY) -> tuple[float, list[dict[str, float]]]:
    """Solve GRID's linear program.

    A worker sends at most what its cables carry, and the ps takes at most what its cables carry.

    Parameters
    ----------
    topology : Topology
        A topology with a ps.
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
    nearest, job, groups = NearestTrees(topology), topology.job, topology.groups()
    ends = [*nearest.sites, nearest.ps]
    program = LinearProgram()
    rate = program.add_variable(cost=-1.0)
    sums = {switch: program.add_variable() for switch in nearest.sites}
    parts = []
    for group in groups:
        nic = group.nic_gbps or sum(topology.free_gbps(group.at, to) for to in topology.graph[group.at])
        most = nic / job.gradient_size
        share = {end: program.add_variable(0, 1) for end in ends}
        part = {end: program.add_variable() for end in ends}
        parts.append(part)
        program.add_row(dict.fromkeys(share.values(), 1.0), 1, 1)
        for end in ends:
            program.add_row({part[end]: 1.0, share[end]: -most}, -INFINITY, 0)
            if end in sums:
                program.add_row({part[end]: 1.0, sums[end]: -1.0}, -INFINITY, 0)
        program.add_row(dict.fromkeys(part.values(), 1.0) | {rate: -1.0}, 0, INFINITY)
    streams = lambda end: {part[end]: len(group.workers) * job.gradient_size for group, part in zip(groups, parts)}
    for switch, site in nearest.sites.items():
        program.add_row(streams(switch), -INFINITY, site.capacity_gbps)
    ingress = topology.graph.nodes[nearest.ps].get("ingress_gbps", INFINITY)
    cables = sum(topology.free_gbps(nearest.ps, to) for to in topology.graph[nearest.ps])
    partial_sums = {variable: job.partial_size for variable in sums.values()}
    program.add_row(streams(nearest.ps) | partial_sums, -INFINITY, min(ingress, cables))
    found = program.solve(time_s=time_s).values
    if not found:
        raise TopologyError(f"GRID's linear program was not solved within {time_s:.3g} s: raise --seconds")
    return found[rate], [{end: found[variable] for end, variable in part.items()} for part in parts]


def plan_like_grid(topology: Topology, *, seed: int = 1, time_s: float = 60.0) -> Plan:
    """Return the best of `ROUNDINGS` roundings, repaired by moving workers as long as that helps.

    The plan's note has the rate that the linear program promises, and the median of the roundings without repair. After
    `time_s` seconds, rounding and repair end with the best tree so far.
    """
    clock, rng, nearest = Clock(time_s), random.Random(seed), NearestTrees(topology)
    promised, parts = solve_relaxation(topology, time_s)
    rounded: dict[tuple[str, ...], Tree] = {}
    rates: list[float] = []
    for _ in range(ROUNDINGS):
        if rates and not clock.left:
            break
        homes: dict[str, str] = {}
        for group, part in zip(topology.groups(), parts):
            weights = [max(value, 0.0) for value in part.values()]
            homes |= dict(zip(group.workers, rng.choices(list(part), weights, k=len(group.workers))))
        key = tuple(homes.values())
        if key not in rounded and nearest.has_room(homes):
            rounded[key] = nearest.tree(homes)
        rates.append(rounded[key].rate_gbps if key in rounded else 0.0)
    best = sorted(rounded.values(), key=lambda tree: -tree.rate_gbps)[:REPAIRED] or [
        nearest.tree(dict.fromkeys(topology.workers, nearest.ps))
    ]
    repair = _Repair(nearest, clock)
    tree = max((repair.improve(tree) for tree in best), key=lambda tree: tree.rate_gbps)
    median = statistics.median(rates)
    note = (
        f"its program, without links, promises {promised:.4g}; "
        f"its roundings give {median:.4g} (median of {len(rates)}) unrepaired"
    )
    return Plan(
        scheme="GRID, repaired",
        trees=(tree,),
        bound_gbps=INFINITY,
        shadow_prices=find_shadow_prices(topology, (tree,)),
        seconds=clock.seconds,
        note=note,
    )


class _Repair:
    """Moves workers to other switches, by loads as vectors: one for each worker's stream, one for each switch's sum."""

    def __init__(self, nearest: NearestTrees, clock: Clock):
        self.nearest, self.clock = nearest, clock
        available = capacities(nearest.topology)
        self.index = {resource: number for number, resource in enumerate(available)}
        self.available = np.array(list(available.values())) + 1e-12
        first_at = {at: worker for worker, at in reversed(list(nearest.start.items()))}
        self.gradients: dict[tuple[str, str], npt.NDArray[np.float64]] = {}
        self.sums: dict[str, npt.NDArray[np.float64]] = {}
        for at, worker in first_at.items():
            for home in (*nearest.sites, nearest.ps):
                tree = nearest.tree({worker: home})
                total = self._vector(loads(nearest.topology, tree))
                if home != nearest.ps and home not in self.sums:
                    sum_alone = replace(tree, homes={}, up={home: tree.up[home]}, down={})
                    self.sums[home] = self._vector(loads(nearest.topology, sum_alone))
                self.gradients[at, home] = total - self.sums.get(home, 0.0)

    def _vector(self, parts: Mapping[Resource, float]) -> npt.NDArray[np.float64]:
        found = np.zeros(len(self.available))
        for resource, load in parts.items():
            if resource in self.index:
                found[self.index[resource]] += load
        return found

    def _fill_levels(self, counts: Mapping[tuple[str, str], int]) -> list[float]:
        """Return the load of each resource as a part of its capacity, the fullest first, rounded to make ties equal.

        counts: workers by (start, home).
        """
        load = sum((number * self.gradients[pair] for pair, number in counts.items()), np.zeros(len(self.available)))
        for home in {home for (_, home), number in counts.items() if number}:
            load = load + self.sums.get(home, 0.0)
        found: list[float] = (-np.sort(-(load / self.available))).round(9).tolist()
        return found

    def _has_room(self, counts: Mapping[tuple[str, str], int]) -> bool:
        return all(
            sum(number for (_, at), number in counts.items() if at == home) <= (site.members or INFINITY)
            for home, site in self.nearest.sites.items()
        )

    def improve(self, tree: Tree) -> Tree:
        """Return a tree with the best moves applied, one after another.

        A move takes one worker, or all workers of a switch with one home, to another home. It is an improvement if the
        fullest resource gets emptier, or stays and the next fullest one does.
        """
        nearest = self.nearest
        counts = Counter((nearest.start[worker], home) for worker, home in tree.homes.items())
        value = self._fill_levels(counts)
        for _ in range(MOVES_MAX):
            best = None
            for (at, home), number in counts.items():
                if not self.clock.left:
                    break
                for place in (*nearest.sites, nearest.ps):
                    for moved in {1, number} if place != home and number else ():
                        after = counts + Counter({(at, place): moved})
                        after[at, home] -= moved
                        if (levels := self._fill_levels(after)) < value and self._has_room(after):
                            best, value = after, levels
            if best is None:
                break
            counts = +best
        workers = nearest.topology.workers
        waiting = {at: [worker for worker in workers if nearest.start[worker] == at] for at in nearest.start.values()}
        homes = {waiting[at].pop(0): home for at, home in sorted(counts.elements())}
        return nearest.tree({worker: homes[worker] for worker in workers})

"""GRID's own algorithm as a baseline: its linear program without links, randomised rounding, and a repair of what that
breaks.

Fang, Zhao, Xu, Wu, Yao: GRID, IEEE/ACM Transactions on Networking 31(5), 2023: maximise the rate that all workers
reach, each splitting its gradient over aggregation nodes; a switch's sum is as fast as its fastest worker's part;
capacities of switches and the ps bind, links do not. Each worker then takes one node, with chances as its parts are.
Rounded so the rate stays and capacities break, so here the rate is lowered until all fits, links too.
"""

import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from iswitch.plan.baselines.systems import Nearest
from iswitch.plan.solver.linear_program import INFINITY, Program
from iswitch.plan.solver.shadow_prices import fixed_prices
from iswitch.plan.solver.tree import Plan, Resource, Tree, capacities, loads
from iswitch.plan.topology.topology import Topology

__all__ = ["grid", "relaxed"]

DRAWS = 200
REPAIRED = 4
"""So many of the best different draws are repaired."""
MOVES = 200


def relaxed(topology: Topology) -> tuple[float, list[dict[str, float]]]:
    """(rate of the linear program, for each group of workers its parts by aggregation node). A worker sends at most
    what its cable takes; the ps takes what its cables bring."""
    near, job, groups = Nearest(topology), topology.job, topology.groups()
    ends = [*near.sites, near.ps]
    program = Program()
    rate = program.variable(cost=-1.0)
    sums = {switch: program.variable() for switch in near.sites}
    parts = []
    for group in groups:
        nic = group.nic_gbps or sum(topology.free_gbps(group.at, to) for to in topology.graph[group.at])
        most = nic / job.gradient_size
        x = {end: program.variable(0, 1) for end in ends}
        r = {end: program.variable() for end in ends}
        parts.append(r)
        program.row(dict.fromkeys(x.values(), 1.0), 1, 1)
        for end in ends:
            program.row({r[end]: 1.0, x[end]: -most}, -INFINITY, 0)
            if end in sums:
                program.row({r[end]: 1.0, sums[end]: -1.0}, -INFINITY, 0)
        program.row(dict.fromkeys(r.values(), 1.0) | {rate: -1.0}, 0, INFINITY)
    streams = lambda end: {r[end]: len(group.workers) * job.gradient_size for group, r in zip(groups, parts)}
    for switch, site in near.sites.items():
        program.row(streams(switch), -INFINITY, site.capacity_gbps)
    ingress = topology.graph.nodes[near.ps].get("ingress_gbps", INFINITY)
    wires = sum(topology.free_gbps(near.ps, to) for to in topology.graph[near.ps])
    program.row(
        streams(near.ps) | {variable: job.partial_size for variable in sums.values()}, -INFINITY, min(ingress, wires)
    )
    found = program.solve().values
    return found[rate], [{end: found[variable] for end, variable in r.items()} for r in parts]


def grid(topology: Topology, *, seed: int = 1) -> Plan:
    """The best of `DRAWS` roundings, repaired by moving workers one after another while that helps. The note says what
    the linear program promised, and the median of the draws without repair."""
    began, chance, near = time.perf_counter(), random.Random(seed), Nearest(topology)
    promised, parts = relaxed(topology)
    drawn: dict[tuple[str, ...], Tree] = {}
    rates = []
    for _ in range(DRAWS):
        homes: dict[str, str] = {}
        for group, part in zip(topology.groups(), parts):
            weights = [max(value, 0.0) for value in part.values()]
            homes |= dict(zip(group.workers, chance.choices(list(part), weights, k=len(group.workers))))
        key = tuple(homes.values())
        if key not in drawn and near.allowed(homes):
            drawn[key] = near.tree(homes)
        rates.append(drawn[key].rate_gbps if key in drawn else 0.0)
    best = sorted(drawn.values(), key=lambda tree: -tree.rate_gbps)[:REPAIRED] or [
        near.tree(dict.fromkeys(topology.workers, near.ps))
    ]
    repair = _Repair(near)
    tree = max((repair.repaired(tree) for tree in best), key=lambda tree: tree.rate_gbps)
    note = f"its program, without links, promises {promised:.4g}; its roundings give {statistics.median(rates):.4g} (median of {DRAWS}) unrepaired"
    return Plan(
        scheme="GRID, repaired",
        trees=(tree,),
        bound_gbps=INFINITY,
        prices=fixed_prices(topology, (tree,)),
        seconds=time.perf_counter() - began,
        note=note,
    )


class _Repair:
    """Loads of trees whose ways are `near`'s, as sums of vectors: of each worker's stream, and of each switch's sum."""

    def __init__(self, near: Nearest):
        self.near = near
        room = capacities(near.topology)
        self.index = {resource: number for number, resource in enumerate(room)}
        self.room = np.array(list(room.values())) + 1e-12
        first = {at: worker for worker, at in reversed(list(near.at.items()))}
        self.gradients: dict[tuple[str, str], npt.NDArray[np.float64]] = {}
        self.sums: dict[str, npt.NDArray[np.float64]] = {}
        for at, worker in first.items():
            for home in (*near.sites, near.ps):
                parts = loads(near.topology, near.tree({worker: home}))
                whole = self.vector(parts)
                if home != near.ps and home not in self.sums:
                    lone = near.tree({worker: home})
                    bare = replace(lone, homes={}, up={home: lone.up[home]}, down={})
                    self.sums[home] = self.vector(loads(near.topology, bare))
                self.gradients[at, home] = whole - self.sums.get(home, 0.0)

    def vector(self, parts: Mapping[Resource, float]) -> npt.NDArray[np.float64]:
        found = np.zeros(len(self.room))
        for resource, load in parts.items():
            if resource in self.index:
                found[self.index[resource]] += load
        return found

    def fill(self, counts: Mapping[tuple[str, str], int]) -> list[float]:
        """How full everything is, the fullest first; rounded so that equal things are equal."""
        load = sum((number * self.gradients[pair] for pair, number in counts.items()), np.zeros(len(self.room)))
        for home in {home for (_, home), number in counts.items() if number}:
            load = load + self.sums.get(home, 0.0)
        found: list[float] = (-np.sort(-(load / self.room))).round(9).tolist()
        return found

    def allowed(self, counts: Mapping[tuple[str, str], int]) -> bool:
        return all(
            sum(number for (_, at), number in counts.items() if at == home) <= (site.members or INFINITY)
            for home, site in self.near.sites.items()
        )

    def repaired(self, tree: Tree) -> Tree:
        """Moves a worker, or all of a place with one home, as long as the fullest resource gets emptier, or that and
        the next fullest after it."""
        near = self.near
        counts = Counter((near.at[worker], home) for worker, home in tree.homes.items())
        value = self.fill(counts)
        for _ in range(MOVES):
            best = None
            for (at, home), number in counts.items():
                for place in (*near.sites, near.ps):
                    for moved in {1, number} if place != home and number else ():
                        moves = counts + Counter({(at, place): moved})
                        moves[at, home] -= moved
                        if (full := self.fill(moves)) < value and self.allowed(moves):
                            best, value = moves, full
            if best is None:
                break
            counts = +best
        waiting = {at: [worker for worker in near.topology.workers if near.at[worker] == at] for at in near.at.values()}
        homes = {waiting[at].pop(0): home for at, home in sorted(counts.elements())}
        return near.tree({worker: homes[worker] for worker in near.topology.workers})

"""GRID's own algorithm as a baseline: its linear program without links, randomised rounding, and a repair of what that breaks.

Fang, Zhao, Xu, Wu, Yao: GRID, IEEE/ACM Transactions on Networking 31(5), 2023: maximise the rate that all workers reach, each splitting its gradient over
aggregation nodes; a switch's sum is as fast as its fastest worker's part; capacities of switches and the ps bind, links do not. Each worker then takes
one node, with chances as its parts are. Rounded so the rate stays and capacities break, so here the rate is lowered until all fits, links too.
"""

import random
import statistics
import time

from iswitch.plan.baselines import Nearest
from iswitch.plan.prices import fixed_prices
from iswitch.plan.program import INFINITY, Program
from iswitch.plan.topology import Topology
from iswitch.plan.tree import Plan, Tree, capacities, loads

__all__ = ["grid", "relaxed"]

DRAWS = 200
REPAIRED = 4
"""So many of the best different draws are repaired."""
MOVES = 200


def relaxed(topology: Topology) -> tuple[float, list[dict[str, float]]]:
    """(rate of the linear program, for each group of workers its parts by aggregation node). A worker sends at most what its cable takes; the ps takes
    what its cables bring."""
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
    program.row(streams(near.ps) | {variable: job.partial_size for variable in sums.values()}, -INFINITY, min(ingress, wires))
    found = program.solve().values
    return found[rate], [{end: found[variable] for end, variable in r.items()} for r in parts]


def grid(topology: Topology, *, seed: int = 1) -> Plan:
    """The best of `DRAWS` roundings, repaired by moving workers one after another while that helps. The note says what the linear program promised,
    and the median of the draws without repair."""
    began, chance, near = time.perf_counter(), random.Random(seed), Nearest(topology)
    promised, parts = relaxed(topology)
    drawn: dict[tuple[str, ...], Tree] = {}
    rates = []
    for _ in range(DRAWS):
        homes = {}
        for group, part in zip(topology.groups(), parts):
            weights = [max(value, 0.0) for value in part.values()]
            homes |= dict(zip(group.workers, chance.choices(list(part), weights, k=len(group.workers))))
        key = tuple(homes.values())
        if key not in drawn and near.allowed(homes):
            drawn[key] = near.tree(homes)
        rates.append(drawn[key].rate_gbps if key in drawn else 0.0)
    best = sorted(drawn.values(), key=lambda tree: -tree.rate_gbps)[:REPAIRED] or [near.tree(dict.fromkeys(topology.workers, near.ps))]
    tree = max((_repaired(near, tree) for tree in best), key=lambda tree: tree.rate_gbps)
    note = f"its program, without links, promises {promised:.4g}; its roundings give {statistics.median(rates):.4g} (median of {DRAWS}) unrepaired"
    return Plan(scheme="GRID, repaired", trees=(tree,), bound_gbps=INFINITY, prices=fixed_prices(topology, (tree,)),
                seconds=time.perf_counter() - began, note=note)


def _repaired(near: Nearest, tree: Tree) -> Tree:
    """Moves a worker, or all of a group at one place, as long as the fullest resource gets emptier, or that and the next fullest after it."""
    room = capacities(near.topology)

    def fill(tree: Tree) -> list[float]:
        return sorted((round(load / room[resource], 9) for resource, load in loads(near.topology, tree).items() if resource in room), reverse=True)

    best, value = tree, fill(tree)
    for _ in range(MOVES):
        moves, tried = [], set()
        for worker, home in best.homes.items():
            for place in (*near.sites, near.ps):
                if place == home or (near.at[worker], home, place) in tried:
                    continue
                tried.add((near.at[worker], home, place))
                alike = {other: place for other, at in best.homes.items() if at == home and near.at[other] == near.at[worker]}
                moves += [near.tree(homes) for homes in ({**best.homes, worker: place}, {**best.homes, **alike}) if near.allowed(homes)]
        found = min(moves, key=fill, default=best)
        if fill(found) >= value:
            break
        best, value = found, fill(found)
    return best

"""Plans as existing systems make them: no aggregation, each worker at its own switch (ATP), one switch for all workers
(SwitchML)."""

import time
from dataclasses import replace
from itertools import pairwise

from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.tree import Plan, capacities, loads
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["plan_like_atp", "plan_like_switchml", "plan_without_aggregation", "with_parameter_server"]

SAME = 1e-9
"""Difference of rates, in Gb/s, that does not count."""


def with_parameter_server(topology: Topology) -> Topology:
    """Return the topology with a ps, which these schemes need.

    If it has none, the worker with the fastest cable becomes the ps, the first of several. Its own gradient then
    needs no cable.
    """
    if topology.ps:
        return topology
    graph = topology.graph.copy()
    if len(topology.workers) < 2:
        raise TopologyError("without a ps, a topology must have at least two workers")
    fastest = max(topology.workers, key=lambda worker: max(topology.free_gbps(worker, near) for near in graph[worker]))
    graph.nodes[fastest]["role"] = "ps"
    return Topology(graph, topology.job)


def plan_without_aggregation(topology: Topology, *, time_s: float = 60.0) -> Plan:
    """Return the best routing of all gradients to the ps, where gradients may be split."""
    return plan_several_trees(topology, sites=(), time_s=time_s, scheme="no aggregation")


def plan_like_switchml(topology: Topology) -> Plan:
    """Return the plan in which the best single switch sums all workers and sends the sum to the ps."""
    began, nearest = time.perf_counter(), NearestTrees(topology)
    trees = [
        nearest.tree(homes)
        for site in nearest.sites
        if nearest.has_room(homes := dict.fromkeys(topology.workers, site))
    ]
    if not trees:
        raise TopologyError("no switch has room for all workers (members)")
    best = max(trees, key=lambda tree: tree.rate_gbps)
    return Plan(
        scheme="SwitchML-like",
        trees=(best,),
        bound_gbps=INFINITY,
        shadow_prices=find_shadow_prices(topology, (best,)),
        seconds=time.perf_counter() - began,
    )


def plan_like_atp(topology: Topology) -> Plan:
    """Return the ToR-only plan: each worker's own switch sums as much as it can.

    The rest goes to the ps unsummed, on shortest paths. How much each switch sums is the best possible, by a linear
    program. If a worker's switch does not aggregate, all of its gradient goes to the ps.
    """
    began, nearest = time.perf_counter(), NearestTrees(topology)
    available = capacities(topology)
    own_switch = {worker: at for worker, at in nearest.start.items() if at in nearest.sites}
    if not nearest.has_room(own_switch):
        raise TopologyError("a switch has no room for all of its workers (members)")
    switches = sorted(set(own_switch.values()))
    direct = dict.fromkeys(topology.workers, nearest.ps)
    base = loads(topology, nearest.tree(direct))
    program = LinearProgram()
    rate = program.add_variable(cost=-1.0)
    summed = {switch: program.add_variable(cost=-1e-6) for switch in switches}
    rows = {resource: {rate: load} for resource, load in base.items()}
    for switch, variable in summed.items():
        program.add_row({variable: 1.0, rate: -1.0}, -INFINITY, 0)
        own = {worker: at for worker, at in own_switch.items() if at == switch}
        with_switch = loads(topology, nearest.tree(direct | own))
        for resource in with_switch.keys() | base.keys():
            change = with_switch.get(resource, 0.0) - base.get(resource, 0.0)
            if change:
                rows.setdefault(resource, {})[variable] = change
    for resource, terms in rows.items():
        if resource in available:
            program.add_row(terms, -INFINITY, available[resource])
    found = program.solve().values
    levels = sorted({0.0, found[rate], *(min(found[variable], found[rate]) for variable in summed.values())})
    trees = []
    for low, high in pairwise(levels):
        if high - low > SAME:
            own = {worker: at for worker, at in own_switch.items() if found[summed[at]] >= high - SAME}
            trees.append(replace(nearest.tree(direct | own), rate_gbps=high - low))
    fastest_first = tuple(sorted(trees, key=lambda tree: -tree.rate_gbps))
    return Plan(
        scheme="ATP-like",
        trees=fastest_first,
        bound_gbps=INFINITY,
        shadow_prices=find_shadow_prices(topology, fastest_first),
        seconds=time.perf_counter() - began,
    )

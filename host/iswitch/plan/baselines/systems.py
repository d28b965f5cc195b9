"""Plans as existing systems make them: no aggregation, each worker at its own switch (ATP), and each rack first, then
one switch (SwitchML)."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.tree import Plan, Tree, fit_rates
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["plan_like_atp", "plan_like_switchml", "plan_without_aggregation", "with_parameter_server"]

SAME = 1e-9
"""Difference of rates, in Gb/s, that does not count."""


def with_parameter_server(topology: Topology) -> Topology:
    """Return the topology with a ps, which these schemes need.

    If it has none, the worker with the fastest cable becomes the ps, the first of several. Its own gradient then
    needs no cable. If results return, the slower direction of a cable counts, otherwise the one to the worker.
    """
    if topology.ps:
        return topology
    graph = topology.graph.copy()
    if len(topology.workers) < 2:
        raise TopologyError("without a ps, a topology must have at least two workers")
    returns = topology.job.return_path != "none"
    usable = lambda worker, near: min(
        topology.free_gbps(near, worker), topology.free_gbps(worker, near) if returns else INFINITY
    )
    fastest = max(topology.workers, key=lambda worker: max(usable(worker, near) for near in graph[worker]))
    graph.nodes[fastest]["role"] = "ps"
    return Topology(graph, topology.job)


def plan_without_aggregation(topology: Topology, *, time_s: float = 60.0) -> Plan:
    """Return the best routing of all gradients to the ps, where gradients may be split."""
    return plan_several_trees(topology, sites=(), time_s=time_s, scheme="no aggregation", limited=False)


def plan_like_switchml(topology: Topology, *, time_s: float = 60.0) -> Plan:
    """Return the plan of switches in a hierarchy: each worker's own switch sums it, and one switch sums these sums.

    The latter sends its sum to the ps. It is the best one for this. A worker whose own switch does not aggregate is
    summed by that one switch directly.
    """
    clock, nearest = Clock(time_s), NearestTrees(topology)
    best: tuple[float, dict[str, str], dict[str, str]] | None = None
    # Central switches first, should the time end: those with the most cables to other switches.
    switches = set(topology.switches)
    degree = {site: len(switches & set(topology.graph[site])) for site in nearest.sites}
    for top in sorted(nearest.sites, key=lambda site: -degree[site]):
        if best and not clock.left:
            break
        own = {worker: at for worker, at in nearest.start.items() if at in nearest.sites}
        homes = {worker: own.get(worker, top) for worker in topology.workers}
        parents = {home: top for home in homes.values() if home != top} | {top: nearest.ps}
        counts = nearest.count(homes)
        if nearest.has_room(counts, parents):
            rate = nearest.rate(nearest.loads(counts, parents))
            if best is None or rate > best[0]:
                best = rate, homes, parents
    if not best:
        raise TopologyError("no switch has room for the sums of all racks (members)")
    return _plan("SwitchML-like", topology, nearest.trees(*best[1:]), clock)


def plan_like_atp(topology: Topology, *, homes: Mapping[str, str] | None = None, time_s: float = 60.0) -> Plan:
    """Return the ToR-only plan: each worker's own switch sums as much as it can.

    The rest goes to the ps unsummed. All take shortest paths. How much each switch sums is the best possible, by a
    linear program. If a worker's switch does not aggregate, all of its gradient goes to the ps.

    Parameters
    ----------
    topology : Topology
        A topology with a ps.
    homes : mapping of str to str, optional
        The switch that sums each worker, instead of its own; workers that are missing send all to the ps.
    time_s : float
        Time limit in seconds.
    """
    clock, nearest = Clock(time_s), NearestTrees(topology)
    if homes is None:
        homes = {worker: at for worker, at in nearest.start.items() if at in nearest.sites}
    if not nearest.has_room(nearest.count(homes)):
        raise TopologyError("a switch has no room for all of its workers (members)")
    direct = dict.fromkeys(topology.workers, nearest.ps)
    base = nearest.loads(nearest.count(direct))
    program = LinearProgram()
    rate = program.add_variable(cost=-1.0)
    summed = {switch: program.add_variable(cost=-1e-6) for switch in sorted(set(homes.values()))}
    rows = {place: {rate: float(base[place])} for place in base.nonzero()[0]}
    changes = [(nearest.partial_sum(switch, nearest.ps), 1, switch) for switch in summed]
    for (at, switch), workers in nearest.count(homes).items():
        changes.append((nearest.gradient(at, switch), workers, switch))
        changes.append((nearest.gradient(at, nearest.ps), -workers, switch))
    for variable in summed.values():
        program.add_row({variable: 1.0, rate: -1.0}, -INFINITY, 0)
    for load, factor, switch in changes:
        for place, size in zip(load.places, load.sizes):
            terms = rows.setdefault(place, {})
            terms[summed[switch]] = terms.get(summed[switch], 0.0) + factor * float(size)
    for place, terms in rows.items():
        program.add_row(terms, -INFINITY, float(nearest.gbps[place]))
    solution = program.solve(time_s=max(clock.left, 1e-3))
    found = solution.values
    if solution.status != "optimal":
        raise TopologyError(f"no plan was found within {time_s:.3g} s: raise --seconds")
    levels = sorted({0.0, found[rate], *(min(found[variable], found[rate]) for variable in summed.values())})
    trees: list[Tree] = []
    for low, high in pairwise(levels):
        if high - low > SAME:
            own = {worker: at for worker, at in homes.items() if found[summed[at]] >= high - SAME}
            every = nearest.trees(direct | own)
            total = sum(tree.rate_gbps for tree in every)
            trees += [replace(tree, rate_gbps=tree.rate_gbps / total * (high - low)) for tree in every]
    return _plan("ATP-like", topology, fit_rates(topology, trees), clock)


def _plan(scheme: str, topology: Topology, trees: tuple[Tree, ...], clock: Clock) -> Plan:
    return Plan(
        scheme=scheme,
        trees=trees,
        bound_gbps=INFINITY,
        shadow_prices=find_shadow_prices(topology, trees),
        seconds=clock.seconds,
    )

"""Several trees that share the gradient: fragments take tree k in proportion to its rate.

Packing trees into capacities is a linear program with one variable for each possible tree. It is solved by column
generation. The program over the trees known so far gives each resource a price; the cheapest tree at these prices is
added, until no tree costs less than the rate that it gains. Any prices prove a bound: the value of all resources,
divided by the cost of the cheapest tree. The prices of the program itself are 0 nearly everywhere and jump, so trees
are sought at prices between these and those of the best bound (stabilisation, Wentges 1997).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.pricing import PricingProblem
from iswitch.plan.solver.relaxation import Relaxation
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.simple_trees import make_simple_trees, make_stars
from iswitch.plan.solver.sites import Site, find_sites
from iswitch.plan.solver.tree import Plan, Resource, Tree, at_full_rate, capacities, loads
from iswitch.plan.topology.topology import Topology

__all__ = ["plan_several_trees"]

SITES_MAX = 30
"""Most sites for which the cheapest tree is sought. Trees to start from are packed in a larger fabric."""
OPTIMAL, SLACK = 1e-7, 1e-6
"""Relative gap at which a packing counts as optimal; by how much rounding may put a rate above its bound."""


def plan_several_trees(
    topology: Topology,
    *,
    levels: int | None = 1,
    time_s: float = 60.0,
    adjacent: bool = False,
    start: Sequence[Tree] = (),
    sites: Sequence[Site] | None = None,
    scheme: str | None = None,
) -> Plan:
    """Return the best packing of trees.

    Parameters
    ----------
    topology : Topology
        The topology.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    time_s : float
        Time limit in seconds. A packing that is not proved optimal by then has an upper bound.
    adjacent : bool
        Let each switch sum only its neighbours.
    start : sequence of Tree
        Trees to start from.
    sites : sequence of Site, optional
        Places where sums can be formed, beside the ps; by default every switch that aggregates.
    scheme : str, optional
        The name of the plan's scheme.

    Raises
    ------
    TopologyError
        If no tree reaches all workers.
    """
    clock = Clock(time_s)
    sites = find_sites(topology) if sites is None else sites
    is_large = len(sites) > SITES_MAX
    pricing = PricingProblem(topology, sites, levels, adjacent)
    available = capacities(topology)
    center = {resource: 1 / gbps for resource, gbps in available.items() if gbps}
    columns = list(start)
    if is_large:
        columns += [*make_stars(topology, sites, adjacent), *make_simple_trees(topology, sites, levels, adjacent, 4)]
    if not columns:
        first = pricing.cheapest_tree(center)
        assert first, "there was no time limit"
        columns = [first[0]]
    column_loads = [loads(topology, tree) for tree in columns]
    # No worker is faster than its cables.
    bound = (
        min(sum(topology.free_gbps(worker, near) for near in topology.graph[worker]) for worker in topology.workers)
        / topology.job.gradient_size
    )
    if is_large and (least_t := Relaxation(topology, sites, levels, adjacent).least_t(clock.part(0.3))):
        bound = min(bound, 1 / least_t)
    weight = 0.5
    while True:
        total, rates, duals = _pack(available, column_loads)
        column = None
        while not is_large and clock.left and bound > total * (1 + OPTIMAL) and column is None:
            scale = total / sum(center[resource] * available[resource] for resource in center)
            prices = {
                resource: weight * scale * center[resource] + (1 - weight) * duals.get(resource, 0.0)
                for resource in center
            }
            if (found := pricing.cheapest_tree(prices, clock.left)) is None:
                break
            tree, cost = found
            value = sum(price * available[resource] for resource, price in prices.items())
            proved = value / cost if cost > 0 else INFINITY
            if proved < bound:
                bound, center = proved, prices
            load = loads(topology, tree)
            reduced_cost = sum(duals.get(resource, 0.0) * gbps for resource, gbps in load.items())
            if reduced_cost < 1 - OPTIMAL / 10 and load not in column_loads:
                column, weight = (tree, load), 0.5
            else:
                weight /= 4
        if column is None:
            break
        columns.append(column[0])
        column_loads.append(column[1])
    seconds = clock.seconds
    used = [replace(tree, rate_gbps=rate) for tree, rate in zip(columns, rates) if rate > OPTIMAL]
    trees = _fit(topology, used)
    rate = sum(tree.rate_gbps for tree in trees)
    if bound < rate * (1 - SLACK):
        raise RuntimeError(f"trees carry {rate:.6g} Gb/s, above their bound, {bound:.6g}")
    name = scheme or ("several trees, one level" if levels == 1 else "several trees, several levels")
    return Plan(
        scheme=name,
        trees=trees,
        bound_gbps=rate if bound <= rate * (1 + SLACK) else max(bound, rate),
        shadow_prices=find_shadow_prices(topology, trees),
        seconds=seconds,
    )


class _Packing(NamedTuple):
    """Total rate, the rate of each tree, and the price of each resource that a tree uses."""

    total: float
    rates: list[float]
    duals: dict[Resource, float]


def _pack(available: Mapping[Resource, float], column_loads: Sequence[Mapping[Resource, float]]) -> _Packing:
    """Return the fastest packing of trees with these loads."""
    program = LinearProgram()
    shares = [program.add_variable(cost=-1.0) for _ in column_loads]
    users: dict[Resource, dict[int, float]] = {}
    for variable, load in zip(shares, column_loads):
        for resource, gbps in load.items():
            if resource in available:
                users.setdefault(resource, {})[variable] = gbps
    rows = {resource: program.add_row(terms, -INFINITY, available[resource]) for resource, terms in users.items()}
    found = program.solve()
    duals = {resource: max(-found.duals[row], 0.0) for resource, row in rows.items()}
    return _Packing(-found.objective, found.values, duals)


def _fit(topology: Topology, trees: list[Tree]) -> tuple[Tree, ...]:
    """Return the trees, the fastest first, at rates that overload nothing, whatever the solver's tolerance was."""
    if len(trees) == 1:
        return (at_full_rate(topology, trees[0]),)
    available, total = capacities(topology), dict[Resource, float]()
    for tree in trees:
        for resource, load in loads(topology, tree).items():
            total[resource] = total.get(resource, 0.0) + load * tree.rate_gbps
    scale = min((available[resource] / load for resource, load in total.items() if resource in available), default=1.0)
    scaled = (replace(tree, rate_gbps=tree.rate_gbps * min(scale, 1.0)) for tree in trees)
    return tuple(sorted(scaled, key=lambda tree: -tree.rate_gbps))

"""Several trees that share the gradient: fragments take tree k in proportion to its rate.

Packing trees into capacities is a linear program with one variable for each possible tree. It is solved by column
generation. The program over the trees known so far gives each resource a price; the cheapest tree at these prices is
added, until no tree costs less than the rate that it gains. Any prices prove a bound: the value of all resources,
divided by the cost of the cheapest tree. The prices of the program itself are 0 nearly everywhere and jump, so trees
are sought at prices between these and those of the best bound (stabilisation, Wentges 1997).

If the packing has more trees than the job may have, or needs more slots, `limited_packing` chooses among the trees.
"""

from collections.abc import Sequence
from dataclasses import replace

from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.limited_packing import bound_of_few, keeps_limits, pack_within_limits
from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.packing import Packing
from iswitch.plan.solver.pricing import PricingProblem
from iswitch.plan.solver.relaxation import Relaxation
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.simple_trees import make_simple_trees, make_stars
from iswitch.plan.solver.sites import Site, find_sites
from iswitch.plan.solver.tree import Plan, Tree, capacities, fit_rates, loads, scheme_name
from iswitch.plan.topology.topology import Topology

__all__ = ["plan_several_trees"]

SITES_MAX = 30
"""Most sites for which the cheapest tree is sought. Trees to start from are packed in a larger fabric."""
STARS_MIN = 16
"""Sites above which the packing starts with the trees in which one switch sums all workers, among others."""
CHOICE_SHARE = 0.3
"""The part of the time to choose among the trees, if the job has a limit."""
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
    bound_of_one: float = INFINITY,
    limited: bool = True,
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
    bound_of_one : float
        Gb/s that no single tree of this kind exceeds, if that is known.
    limited : bool
        Keep the job's limits of trees and whole slots.

    Raises
    ------
    TopologyError
        If no tree reaches all workers.
    """
    whole, limited = Clock(time_s), limited and topology.job.is_limited
    clock = whole.part(1 - CHOICE_SHARE) if limited else whole
    sites = find_sites(topology) if sites is None else sites
    is_large = len(sites) > SITES_MAX
    available = capacities(topology)
    center = {resource: 1 / gbps for resource, gbps in available.items() if gbps}
    columns = list(start)
    if len(sites) > STARS_MIN:
        columns += make_simple_trees(topology, sites, levels, adjacent, 4)
        columns += make_stars(topology, sites, adjacent, clock.part(0.5))
    pricing = None if is_large and columns else PricingProblem(topology, sites, levels, adjacent)
    if not columns:
        assert pricing
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
    name = scheme or scheme_name(levels, several=True)
    weight = 0.5
    while True:
        total, rates, duals = Packing(available, column_loads).solve()
        if not limited:
            clock.report(name, total, bound)
        column = None
        while pricing and not is_large and clock.left and bound > total * (1 + OPTIMAL) and column is None:
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
    used = [replace(tree, rate_gbps=rate) for tree, rate in zip(columns, rates) if rate > OPTIMAL * total]
    trees = fit_rates(topology, used)
    if limited:
        bound = min(bound, bound_of_few(topology, bound_of_one))
        if not keeps_limits(topology, trees):
            trees = pack_within_limits(topology, columns, whole, pricing, bound)
    seconds = whole.seconds
    rate = sum(tree.rate_gbps for tree in trees)
    if bound < rate * (1 - SLACK):
        raise RuntimeError(f"trees carry {rate:.6g} Gb/s, above their bound, {bound:.6g}")
    return Plan(
        scheme=name,
        trees=trees,
        bound_gbps=rate if bound <= rate * (1 + SLACK) else max(bound, rate),
        shadow_prices=find_shadow_prices(topology, trees),
        seconds=seconds,
    )

"""The fastest single tree, with a proof.

In a best plan all workers send at the same rate r. With t = 1/r each constraint is linear: streams on a resource, in
their sizes, are at most its capacity x t. Interchangeable workers are one integer variable, and the streams toward one
place are an integer flow. Since streams are integral, the best t is one of few values: a load that a resource can have,
divided by its capacity. For a given t the question is whether a tree exists. That is far easier than to minimise t:
each right side is rounded down to a load that the resource can have, and a switch that is not used takes nothing.

Values of t are tried upwards from the optimum of the linear relaxation, in growing steps and then by bisection. Each
infeasible t is a proved bound.
"""

import time

from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.pricing import PricingProblem
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.single_tree_model import EQUAL, SingleTreeModel
from iswitch.plan.solver.sites import Upgrade, find_sites
from iswitch.plan.solver.tree import Plan, Tree, at_full_rate, capacities, loads
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["plan_single_tree"]

SLACK = 1e-6
"""By which part rounding may make a tree slower than the t for which it was found."""
FIRST_S = 5.0
"""Time limit of the first question, before a tree is sought by prices."""
TRIALS = 4
"""Trees that are sought by prices."""


def plan_single_tree(
    topology: Topology,
    *,
    levels: int | None = 1,
    time_s: float = 60.0,
    adjacent: bool = False,
    upgrade: Upgrade | None = None,
) -> Plan:
    """Return the fastest tree.

    Parameters
    ----------
    topology : Topology
        The topology.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    time_s : float
        Time limit in seconds. A tree that is not proved optimal by then has an upper bound.
    adjacent : bool
        Let each switch sum only its neighbours, as the emulated fabric requires.
    upgrade : Upgrade, optional
        Switches that may be upgraded. The plan upgrades the fewest that make it this fast.

    Raises
    ------
    TopologyError
        If no tree reaches all workers, or none was found in time.
    """
    if levels is not None and levels < 1:
        raise ValueError(f"levels must be at least 1 or None, not {levels!r}")
    if not time_s > 0:
        raise ValueError(f"time_s must be above 0, not {time_s!r}")
    scheme = "one tree, one level" if levels == 1 else "one tree, several levels"
    began = time.perf_counter()
    left = lambda: max(time_s - (time.perf_counter() - began), 0.0)
    only_neighbours = "; with --adjacent sums go to neighbours only" if adjacent else ""
    no_tree = TopologyError(
        f"{scheme}: no tree reaches all workers: "
        f"raise `members` of the switches, or free bandwidth of cables{only_neighbours}"
    )
    sites = find_sites(topology, upgrade)
    model = SingleTreeModel(
        topology, sites, levels=levels, adjacent=adjacent, upgrades=upgrade.count_max if upgrade else 0
    )
    to_tree = lambda values: at_full_rate(topology.with_capacity(model.upgraded(values)), model.tree(values))
    # Every tree has t >= low. `tree` has t = high, if there is one.
    low, stride, proved = model.lower_bound(left()), 1, False
    if low == INFINITY:
        raise no_tree
    values: list[float] = []
    tree, high, tried_prices = None, model.t_max, bool(upgrade)
    while left() and not proved:
        candidates = model.candidates(low, high)
        ahead = min(stride, (len(candidates) + 1) // 2 if tree else len(candidates)) - 1
        found = None
        if high > low * (1 + EQUAL):
            found = model.solve_within(candidates[ahead], left() if tried_prices else min(left(), FIRST_S))
        if found and found.values:
            values, tree = found.values, to_tree(found.values)
            if tree.rate_gbps * candidates[ahead] < 1 - SLACK:
                raise RuntimeError(f"a tree for {1 / candidates[ahead]:.6g} Gb/s carries {tree.rate_gbps:.6g}")
            high, proved = min(candidates[ahead], 1 / tree.rate_gbps), ahead == 0
        elif not found or found.status == "infeasible":
            if tree is None and ahead + 1 == len(candidates):
                raise no_tree
            low, proved = (high, True) if ahead + 1 == len(candidates) else (candidates[ahead + 1], False)
        if not tried_prices and not proved:  # the first question had no tree, or no answer
            pricing = PricingProblem(topology, sites, levels, adjacent)
            tried_prices, priced = True, _tree_by_prices(topology, pricing, low)
            if priced and 1 / priced.rate_gbps < high:
                tree, high = priced, 1 / priced.rate_gbps
        stride *= 2
    if tree is None and not upgrade:
        tree = _tree_by_prices(topology, PricingProblem(topology, sites, levels, adjacent), low)
    seconds = time.perf_counter() - began
    if tree is None:
        raise TopologyError(f"{scheme}: no tree was found within {time_s:g} s: raise --seconds")
    if upgrade and values:
        values = model.with_fewest_upgrades(high, values, left())
        tree = to_tree(values)
    upgraded = model.upgraded(values) if values else {}
    tidied = model.with_least_traffic(high, values)
    if tidied and (tidy := to_tree(tidied)).rate_gbps >= tree.rate_gbps * (1 - EQUAL):
        tree, upgraded = tidy, model.upgraded(tidied)
    return Plan(
        scheme=scheme,
        trees=(tree,),
        bound_gbps=tree.rate_gbps if proved else max(1 / low, tree.rate_gbps),
        shadow_prices=find_shadow_prices(topology.with_capacity(upgraded), (tree,)),
        seconds=seconds,
        upgraded=upgraded,
    )


def _tree_by_prices(topology: Topology, pricing: PricingProblem, low: float) -> Tree | None:
    """Return a good tree in little time: the cheapest one, at prices that rise where earlier trees put most load."""
    available = capacities(topology)
    prices, best = {resource: 1 / gbps for resource, gbps in available.items() if gbps}, None
    for _ in range(TRIALS):
        found = pricing.cheapest_tree(prices)
        assert found, "there was no time limit"
        tree = at_full_rate(topology, found[0])
        if tree.rate_gbps and (best is None or tree.rate_gbps > best.rate_gbps):
            best = tree
        if best and best.rate_gbps * low >= 1 - EQUAL:
            break
        for resource, load in loads(topology, tree).items():
            if resource in prices:
                prices[resource] *= 1 + 2 * load * tree.rate_gbps / available[resource]
    return best

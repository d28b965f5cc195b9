"""The fastest single tree, proved.

All workers send at one rate r in a best plan, so with t = 1/r every row is linear: streams on a resource, in their
sizes, <= what it has x t. Workers that nothing tells apart are a whole number, streams to one place a flow of whole
numbers. Streams come in whole numbers, so t is one of few values: what a resource can be made to carry, by what it has.
For one t the question is whether there is a tree, which is far easier than to minimise t: each row's right side is
rounded down to what can be carried, and a switch that is not used takes nothing. The t are gone through from below,
where the linear program begins, in growing steps and then by halves; each `no` is a proved bound.
"""

import time

from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.pricing import Pricing
from iswitch.plan.solver.shadow_prices import fixed_prices
from iswitch.plan.solver.single_tree_model import SAME, Model
from iswitch.plan.solver.sites import Upgrade, sites
from iswitch.plan.solver.tree import Plan, Tree, capacities, fitted, loads
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["one_tree"]

SLACK = 1e-6
FIRST_S = 5.0
TRIES = 4
"""Trees that are cheap at some prices, to begin with."""


def one_tree(
    topology: Topology,
    *,
    levels: int | None = 1,
    time_s: float = 60.0,
    adjacent: bool = False,
    upgrade: Upgrade | None = None,
) -> Plan:
    """The best tree in which a gradient is summed by at most `levels` switches before the root (None: any number).
    adjacent: members are neighbours of who sums them, as the emulated fabric needs it. TopologyError if there is none,
    or none was found in time."""
    if levels is not None and levels < 1:
        raise ValueError(f"levels must be at least 1 or None, not {levels!r}")
    if not time_s > 0:
        raise ValueError(f"time_s must be above 0, not {time_s!r}")
    scheme = "one tree, one level" if levels == 1 else "one tree, summed again"
    began = time.perf_counter()
    left = lambda: max(time_s - (time.perf_counter() - began), 0.0)
    near = "; with --adjacent sums go to neighbours only" if adjacent else ""
    none = TopologyError(
        f"{scheme}: no tree reaches all workers: raise `members` of the switches, or free bandwidth of cables{near}"
    )
    where = sites(topology, upgrade)
    model = Model(topology, where, levels=levels, adjacent=adjacent, upgrades=upgrade.most if upgrade else 0)
    fit = lambda values: fitted(topology.with_capacity(model.upgraded(values)), model.tree(values))
    low, stride, proved = model.lowest(left()), 1, False
    if low == INFINITY:
        raise none
    values: list[float] = []
    tree, known, tried = None, model.longest, bool(upgrade)
    while left() and not proved:
        steps = model.steps(low, known)
        ahead = min(stride, (len(steps) + 1) // 2 if tree else len(steps)) - 1
        found = (
            model.within(steps[ahead], left() if tried else min(left(), FIRST_S)) if known > low * (1 + SAME) else None
        )
        if found and found.values:
            values, tree = found.values, fit(found.values)
            if tree.rate_gbps * steps[ahead] < 1 - SLACK:
                raise RuntimeError(f"a tree for {1 / steps[ahead]:.6g} Gb/s carries {tree.rate_gbps:.6g}")
            known, proved = min(steps[ahead], 1 / tree.rate_gbps), ahead == 0
        elif not found or found.status == "infeasible":
            if tree is None and ahead + 1 == len(steps):
                raise none
            low, proved = (known, True) if ahead + 1 == len(steps) else (steps[ahead + 1], False)
        if not tried and not proved:  # the first answer was no, or none
            tried, first = True, _first(topology, Pricing(topology, where, levels, adjacent), low)
            if first and 1 / first.rate_gbps < known:
                tree, known = first, 1 / first.rate_gbps
        stride *= 2
    if tree is None and not upgrade:
        tree = _first(topology, Pricing(topology, where, levels, adjacent), low)
    seconds = time.perf_counter() - began
    if tree is None:
        raise TopologyError(f"{scheme}: no tree was found within {time_s:g} s: raise --seconds")
    if upgrade and values:
        values = model.fewest(known, values, left())
        tree = fit(values)
    upgraded = model.upgraded(values) if values else {}
    tidied = model.tidy(known, values)
    if tidied and (tidy := fit(tidied)).rate_gbps >= tree.rate_gbps * (1 - SAME):
        tree, upgraded = tidy, model.upgraded(tidied)
    return Plan(
        scheme=scheme,
        trees=(tree,),
        bound_gbps=tree.rate_gbps if proved else max(1 / low, tree.rate_gbps),
        prices=fixed_prices(topology.with_capacity(upgraded), (tree,)),
        seconds=seconds,
        upgraded=upgraded,
    )


def _first(topology: Topology, pricing: Pricing, low: float) -> Tree | None:
    """A good tree in little time: the cheapest at prices that rise where the last ones were too full."""
    room = capacities(topology)
    prices, best = {resource: 1 / gbps for resource, gbps in room.items() if gbps}, None
    for _ in range(TRIES):
        found = pricing.cheapest(prices)
        assert found, "time without end"
        tree = fitted(topology, found[0])
        if tree.rate_gbps and (best is None or tree.rate_gbps > best.rate_gbps):
            best = tree
        if best and best.rate_gbps * low >= 1 - SAME:
            break
        for resource, load in loads(topology, tree).items():
            if resource in prices:
                prices[resource] *= 1 + 2 * load * tree.rate_gbps / room[resource]
    return best

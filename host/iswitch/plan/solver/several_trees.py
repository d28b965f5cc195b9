"""Several trees that share the gradient: fragments go along tree k in proportion to its rate.

A packing of trees into resources, solved by generating trees: the linear program over those known gives each resource a
price, and the tree that is cheapest is added, until none costs less than it brings. Any prices prove a bound: what all
resources are worth by what the cheapest tree costs. Trees are sought at prices between these and those of the best
bound (Wentges, 1997): the program's own are 0 nearly everywhere, and jump.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from iswitch.plan.solver.linear_program import INFINITY, Program
from iswitch.plan.solver.pricing import Pricing
from iswitch.plan.solver.shadow_prices import fixed_prices
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.sites import sites as all_sites
from iswitch.plan.solver.tree import Plan, Resource, Tree, capacities, fitted, loads
from iswitch.plan.topology.topology import Topology

__all__ = ["several_trees"]

ENOUGH, SLACK = 1e-7, 1e-6


def several_trees(
    topology: Topology,
    *,
    levels: int | None = 1,
    time_s: float = 60.0,
    adjacent: bool = False,
    start: Sequence[Tree] = (),
    sites: Sequence[Site] | None = None,
    scheme: str | None = None,
) -> Plan:
    """The best packing of trees of at most `levels` switches before the root (None: any number), from `start` and what
    is found; see `one_tree`. TopologyError."""
    began = time.perf_counter()
    left = lambda: time_s - (time.perf_counter() - began)
    pricing = Pricing(topology, all_sites(topology) if sites is None else sites, levels, adjacent)
    room = capacities(topology)
    even = {resource: 1 / gbps for resource, gbps in room.items() if gbps}
    first = pricing.cheapest(even)
    assert first, "time without end"
    columns = [*start, first[0]]
    known = [loads(topology, tree) for tree in columns]
    rates, center = [0.0], even
    # No worker is faster than its cables.
    bound = (
        min(sum(topology.free_gbps(worker, near) for near in topology.graph[worker]) for worker in topology.workers)
        / topology.job.gradient_size
    )
    weight = 0.5
    while True:
        program = Program()
        share = [program.variable(cost=-1.0) for _ in columns]
        on: dict[Resource, dict[int, float]] = {}
        for variable, load in zip(share, known):
            for resource, gbps in load.items():
                if resource in room:
                    on.setdefault(resource, {})[variable] = gbps
        rows = {resource: program.row(terms, -INFINITY, room[resource]) for resource, terms in on.items()}
        master = program.solve()
        total, rates = -master.objective, master.values
        duals = {resource: max(-master.duals[row], 0.0) for resource, row in rows.items()}
        news = None
        while left() > 0 and bound > total * (1 + ENOUGH) and news is None:
            scale = total / sum(center[resource] * room[resource] for resource in center)
            prices = {
                resource: weight * scale * center[resource] + (1 - weight) * duals.get(resource, 0.0)
                for resource in center
            }
            if (found := pricing.cheapest(prices, left())) is None:
                break
            tree, cost = found
            proved = sum(price * room[resource] for resource, price in prices.items()) / cost if cost > 0 else INFINITY
            if proved < bound:
                bound, center = proved, prices
            load = loads(topology, tree)
            if (
                sum(duals.get(resource, 0.0) * gbps for resource, gbps in load.items()) < 1 - ENOUGH / 10
                and load not in known
            ):
                news, weight = (tree, load), 0.5
            else:
                weight /= 4
        if news is None:
            break
        columns.append(news[0])
        known.append(news[1])
    seconds = time.perf_counter() - began
    trees = _packed(topology, [replace(tree, rate_gbps=rate) for tree, rate in zip(columns, rates) if rate > ENOUGH])
    rate = sum(tree.rate_gbps for tree in trees)
    if bound < rate * (1 - SLACK):
        raise RuntimeError(f"trees carry {rate:.6g} Gb/s, above their bound, {bound:.6g}")
    name = scheme or ("several trees, one level" if levels == 1 else "several trees, summed again")
    return Plan(
        scheme=name,
        trees=trees,
        bound_gbps=rate if bound <= rate * (1 + SLACK) else max(bound, rate),
        prices=fixed_prices(topology, trees),
        seconds=seconds,
    )


def _packed(topology: Topology, trees: list[Tree]) -> tuple[Tree, ...]:
    """Rates just so that nothing is too full, whatever a solver's tolerance was; the fastest tree first."""
    if len(trees) == 1:
        return (fitted(topology, trees[0]),)
    room, total = capacities(topology), dict[Resource, float]()
    for tree in trees:
        for resource, load in loads(topology, tree).items():
            total[resource] = total.get(resource, 0.0) + load * tree.rate_gbps
    scale = min((room[resource] / load for resource, load in total.items() if resource in room), default=1.0)
    return tuple(
        sorted(
            (replace(tree, rate_gbps=tree.rate_gbps * min(scale, 1.0)) for tree in trees),
            key=lambda tree: -tree.rate_gbps,
        )
    )

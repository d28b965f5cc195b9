"""Bottlenecks of a plan, and their shadow prices."""

from collections import Counter
from collections.abc import Mapping, Sequence

from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.tree import Resource, Tree, capacities, loads, total_loads
from iswitch.plan.topology.topology import Topology

__all__ = ["bottlenecks", "find_shadow_prices"]

FULL = 1 - 1e-6
"""The load, as a part of the capacity, from which a resource counts as full."""
STEP = 1e-4
"""By which part a capacity grows to measure its price; a smaller price counts as 0."""


def bottlenecks(topology: Topology, trees: tuple[Tree, ...]) -> list[Resource]:
    """Return the resources that trees fill."""
    available = capacities(topology)
    return [
        resource
        for resource, load in total_loads(topology, trees).items()
        if resource in available and load >= available[resource] * FULL
    ]


def find_shadow_prices(topology: Topology, trees: tuple[Tree, ...]) -> dict[Resource, float]:
    """Return the shadow price of each bottleneck: the Gb/s of rate that 1 Gb/s more of it alone would gain.

    The trees stay as they are, and only their rates change. If several resources limit a tree at once, more of one
    alone gains nothing: the linear program then has many duals, and these are the least.
    """
    available = capacities(topology)
    tree_loads = [loads(topology, tree) for tree in trees]
    before = _rate(available, tree_loads)
    full = bottlenecks(topology, trees)
    # If two resources limit the trees in the same way, more of one of them alone gains nothing.
    ways = {
        resource: tuple(round(load.get(resource, 0.0) / available[resource], 12) for load in tree_loads)
        for resource in full
    }
    often = Counter(ways.values())
    found = {}
    for resource in full:
        if often[ways[resource]] > 1:
            found[resource] = 0.0
            continue
        gain = _rate({**available, resource: available[resource] * (1 + STEP)}, tree_loads) - before
        price = gain / (available[resource] * STEP)
        found[resource] = price if price > STEP else 0.0
    return found


def _rate(available: Mapping[Resource, float], tree_loads: Sequence[Mapping[Resource, float]]) -> float:
    """Return the highest total rate of trees with these loads."""
    if not tree_loads:
        return 0.0
    if len(tree_loads) == 1:
        return min(
            (available[resource] / load for resource, load in tree_loads[0].items() if resource in available),
            default=0.0,
        )
    program = LinearProgram()
    rates = [program.add_variable(cost=-1.0) for _ in tree_loads]
    users: dict[Resource, dict[int, float]] = {}
    for rate, load in zip(rates, tree_loads):
        for resource, size in load.items():
            if resource in available:
                users.setdefault(resource, {})[rate] = size
    for resource, terms in users.items():
        program.add_row(terms, -INFINITY, available[resource])
    return -program.solve().objective

"""Bottlenecks of a plan, and their shadow prices."""

from iswitch.plan.solver.packing import Packing
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
    full = bottlenecks(topology, trees)
    if not full:
        return {}
    packing = Packing(available, [loads(topology, tree) for tree in trees])
    # If two resources limit the trees in the same way, more of one of them alone gains nothing.
    alone = [resource for resource in full if available[resource] and packing.is_alone(resource)]
    found = dict.fromkeys(full, 0.0)
    for resource, gain in zip(alone, packing.gains(alone, STEP)):
        price = gain / (available[resource] * STEP)
        found[resource] = price if price > STEP else 0.0
    return found

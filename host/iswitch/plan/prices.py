"""What binds a plan, and what more of it would be worth."""

from iswitch.plan.program import INFINITY, Program
from iswitch.plan.topology import Topology
from iswitch.plan.tree import Resource, Tree, capacities, loads

__all__ = ["binding", "fixed_prices"]

FULL = 1 - 1e-6


def fixed_prices(topology: Topology, trees: tuple[Tree, ...]) -> dict[Resource, float]:
    """Gb/s of rate for one more Gb/s of each resource, were the trees to stay as they are and only their rates to follow: the duals of that linear
    program. Where several bind a tree at once one alone helps nothing, and they share what all together are worth."""
    program = Program()
    rates = [program.variable(cost=-1.0) for _ in trees]
    on: dict[Resource, dict[int, float]] = {}
    for rate, tree in zip(rates, trees):
        for resource, load in loads(topology, tree).items():
            on.setdefault(resource, {})[rate] = load
    room = capacities(topology)
    rows = {resource: program.row(terms, -INFINITY, room[resource]) for resource, terms in on.items() if resource in room}
    found = program.solve()
    return {resource: -found.duals[row] for resource, row in rows.items() if found.duals[row] < -1e-9}


def binding(topology: Topology, trees: tuple[Tree, ...]) -> list[Resource]:
    """Resources that are full."""
    from iswitch.plan.tree import used

    room = capacities(topology)
    return [resource for resource, load in used(topology, trees).items() if resource in room and load >= room[resource] * FULL]

"""What binds a plan, and what more of it would be worth."""

from collections.abc import Mapping, Sequence

from iswitch.plan.solver.linear_program import INFINITY, Program
from iswitch.plan.solver.tree import Resource, Tree, capacities, loads, used
from iswitch.plan.topology.topology import Topology

__all__ = ["binding", "fixed_prices"]

FULL, STEP = 1 - 1e-6, 1e-4


def binding(topology: Topology, trees: tuple[Tree, ...]) -> list[Resource]:
    """Resources that are full."""
    room = capacities(topology)
    return [
        resource
        for resource, load in used(topology, trees).items()
        if resource in room and load >= room[resource] * FULL
    ]


def fixed_prices(topology: Topology, trees: tuple[Tree, ...]) -> dict[Resource, float]:
    """Shadow prices of all that is full: Gb/s of rate for one more Gb/s of that resource alone, were the trees to stay
    as they are and only their rates to follow. Where several bind a tree at once each alone is worth nothing: then the
    linear program has many duals, and this is the least."""
    room = capacities(topology)
    known = [loads(topology, tree) for tree in trees]
    before = _rate(room, known)
    found = {}
    for resource in binding(topology, trees):
        gain = _rate({**room, resource: room[resource] * (1 + STEP)}, known) - before
        price = gain / (room[resource] * STEP)
        found[resource] = price if price > STEP else 0.0
    return found


def _rate(room: Mapping[Resource, float], known: Sequence[Mapping[Resource, float]]) -> float:
    """All that the trees with these loads can carry together."""
    if not known:
        return 0.0
    if len(known) == 1:
        return min((room[resource] / load for resource, load in known[0].items() if resource in room), default=0.0)
    program = Program()
    rates = [program.variable(cost=-1.0) for _ in known]
    on: dict[Resource, dict[int, float]] = {}
    for rate, load in zip(rates, known):
        for resource, size in load.items():
            if resource in room:
                on.setdefault(resource, {})[rate] = size
    for resource, terms in on.items():
        program.row(terms, -INFINITY, room[resource])
    return -program.solve().objective

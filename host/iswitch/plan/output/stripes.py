"""Several trees in whole numbers: of every so many fragments, how many go along which tree."""

from typing import NamedTuple

from iswitch.plan.solver.tree import Plan, capacities, loads
from iswitch.plan.topology.topology import Topology

__all__ = ["Stripes", "stripes"]

MOST, LOSS = 1024, 0.01


class Stripes(NamedTuple):
    """Of `of` fragments tree k takes the next `fragments[k]`; the rate in Gb/s that is left of the plan's."""

    of: int
    fragments: tuple[int, ...]
    rate_gbps: float


def stripes(topology: Topology, plan: Plan) -> Stripes:
    """The shortest pattern (a power of two, at most `MOST`) that costs no more than `LOSS` of the rate, or the best of
    all."""
    room, known = capacities(topology), [loads(topology, tree) for tree in plan.trees]
    found = []
    of = 1
    while of <= MOST:
        exact = [tree.rate_gbps / plan.rate_gbps * of for tree in plan.trees]
        parts = [int(part) for part in exact]
        rest = sorted(range(len(exact)), key=lambda k: parts[k] - exact[k])
        for k in rest[: of - sum(parts)]:
            parts[k] += 1
        total: dict[object, float] = {}
        for part, load in zip(parts, known):
            for resource, size in load.items():
                if resource in room and part:
                    total[resource] = total.get(resource, 0.0) + part / of * size
        rate = min(gbps / total[resource] for resource, gbps in room.items() if total.get(resource))
        found.append(Stripes(of, tuple(parts), rate))
        if rate >= plan.rate_gbps * (1 - LOSS):
            break
        of *= 2
    return max(found, key=lambda each: each.rate_gbps)

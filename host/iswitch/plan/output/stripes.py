"""The shares of several trees in whole numbers: how many of every so many fragments take which tree."""

from typing import NamedTuple

from iswitch.plan.solver.tree import Plan, Resource, capacities, loads
from iswitch.plan.topology.topology import Topology

__all__ = ["Stripes", "round_to_stripes"]

PATTERN_MAX, LOSS_MAX = 1024, 0.01
"""Fragments of the longest pattern; the part of the rate that rounding may cost."""


class Stripes(NamedTuple):
    """A repeated pattern: of `of` fragments, the next `fragments[k]` take tree k. `rate_gbps` is the rate with it."""

    of: int
    fragments: tuple[int, ...]
    rate_gbps: float


def round_to_stripes(topology: Topology, plan: Plan) -> Stripes:
    """Return the shortest pattern that costs at most `LOSS_MAX` of the rate, or the fastest pattern if none does.

    The length of a pattern is a power of two, at most `PATTERN_MAX`.
    """
    available, tree_loads = capacities(topology), [loads(topology, tree) for tree in plan.trees]
    found = []
    of = 1
    while of <= PATTERN_MAX:
        exact = [tree.rate_gbps / plan.rate_gbps * of for tree in plan.trees]
        fragments = [int(part) for part in exact]
        most_rounded_first = sorted(range(len(exact)), key=lambda k: fragments[k] - exact[k])
        for k in most_rounded_first[: of - sum(fragments)]:
            fragments[k] += 1
        total: dict[Resource, float] = {}
        for count, load in zip(fragments, tree_loads):
            for resource, size in load.items():
                if resource in available and count:
                    total[resource] = total.get(resource, 0.0) + count / of * size
        rate = min(gbps / total[resource] for resource, gbps in available.items() if total.get(resource))
        found.append(Stripes(of, tuple(fragments), rate))
        if rate >= plan.rate_gbps * (1 - LOSS_MAX):
            break
        of *= 2
    return max(found, key=lambda stripes: stripes.rate_gbps)

"""Weighted max-min fair rates of jobs, each of which has a tree, on the resources that the trees share.

Rates are fair if no job can be faster unless another job, whose rate divided by its weight is not larger, gets slower.
Such rates are unique. They are found by progressive filling (Bertsekas and Gallager, Data Networks, 1992, 6.5.2): all
jobs grow in proportion to their weights until a resource is full; the jobs that use it keep their rates, and the others
grow on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.tree import Resource, Tree, loads
from iswitch.plan.topology.shared_fabric import FabricJob
from iswitch.plan.topology.topology import Topology

__all__ = ["Combination", "combine", "fair_rates", "parts_of_resources", "resource_gbps"]

EQUAL = 1e-9
"""Relative difference below which two resources are full at the same time."""


class Combination(NamedTuple):
    """A tree for each job, at fair rates.

    Parameters
    ----------
    trees : tuple of Tree
        The tree of each job, at its fair rate.
    normalised : tuple of float
        For each job its normalised rate: the rate divided by the weight.
    limits : tuple of tuple of Resource
        For each job the full resources because of which it cannot be faster.
    """

    trees: tuple[Tree, ...]
    normalised: tuple[float, ...]
    limits: tuple[tuple[Resource, ...], ...]

    def is_fairer(self, other: "Combination", slack: float) -> bool:
        """Return True if the sorted normalised rates are lexicographically larger, by more than a relative `slack`."""
        for mine, theirs in zip(sorted(self.normalised), sorted(other.normalised)):
            if abs(mine - theirs) > slack * max(mine, theirs):
                return mine > theirs
        return False


def resource_gbps(topology: Topology, resource: Resource) -> float:
    """Return the Gb/s of a resource for all jobs together; slots as the rate at which this topology's job alone would
    fill them."""
    if resource.kind == "link":
        return topology.free_gbps(resource.at, resource.to)
    data = topology.graph.nodes[resource.at]
    if resource.kind == "slots":
        return topology.job.slots_gbps(data["slots"]) if "slots" in data else INFINITY
    return float(data.get("capacity_gbps" if resource.kind == "capacity" else "ingress_gbps", INFINITY))


def parts_of_resources(job: FabricJob, tree: Tree) -> dict[Resource, float]:
    """Return the part of each resource that a tree takes for 1 Gb/s of its rate.

    The job's own limit of slots is a resource of its own, ``max_slots``, with the name of the job as its `to`.
    """
    found: dict[Resource, float] = {}
    for resource, load in loads(job.topology, tree).items():
        gbps = resource_gbps(job.topology, resource)
        if gbps < INFINITY:
            found[resource] = load / gbps if gbps else INFINITY
        most = job.topology.job.max_slots
        if resource.kind == "slots" and most is not None and job.topology.job.round_trip_us:
            found[Resource("max_slots", resource.at, job.name)] = load / job.topology.job.slots_gbps(most)
    return found


def fair_rates(
    parts: Sequence[Mapping[Resource, float]], weights: Sequence[float]
) -> tuple[list[float], list[list[Resource]]]:
    """Return the weighted max-min fair rate of each job, and the full resources that limit it.

    Parameters
    ----------
    parts : sequence of mapping of Resource to float
        For each job the part of each resource that 1 Gb/s of its rate takes. Each job takes a part of something.
    weights : sequence of float
        The weight of each job.
    """
    rates, limits = [0.0] * len(parts), [list[Resource]() for _ in parts]
    growing = set(range(len(parts)))
    users: dict[Resource, list[int]] = {}
    for job, taken in enumerate(parts):
        for resource in taken:
            users.setdefault(resource, []).append(job)
    while growing:
        reach: dict[Resource, float] = {}
        for resource, jobs in users.items():
            growth = sum(weights[job] * parts[job][resource] for job in jobs if job in growing)
            if growth:
                left = 1 - sum(rates[job] * parts[job][resource] for job in jobs if job not in growing)
                reach[resource] = max(left, 0) / growth
        filled = min(reach.values())
        full = [resource for resource, most in reach.items() if most <= filled * (1 + EQUAL)]
        for resource in sorted(full):
            for job in users[resource]:
                if job in growing:
                    rates[job] = weights[job] * filled
                    limits[job].append(resource)
        growing -= {job for resource in full for job in users[resource]}
    return rates, limits


def combine(jobs: Sequence[FabricJob], trees: Sequence[Tree]) -> Combination:
    """Return the trees, one for each job, at their fair rates."""
    parts = [parts_of_resources(job, tree) for job, tree in zip(jobs, trees)]
    rates, limits = fair_rates(parts, [job.weight for job in jobs])
    return Combination(
        tuple(replace(tree, rate_gbps=rate) for tree, rate in zip(trees, rates)),
        tuple(rate / job.weight for job, rate in zip(jobs, rates)),
        tuple(map(tuple, limits)),
    )

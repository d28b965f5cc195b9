"""A tree of gradients, and plans made of one or several; which resources each uses, and what that leaves as rate."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from iswitch.plan.topology.topology import Topology

__all__ = ["Plan", "Resource", "Tree", "capacities", "fitted", "loads", "used"]


class Resource(NamedTuple):
    """Something that binds. kind `link`: the cable from `at` to `to`, in this direction; `capacity`: what a switch can
    add up; `slots`: what it can have in flight, as a rate; `ingress`: what the ps takes. The latter three have no
    `to`."""

    kind: str
    at: str
    to: str = ""

    def told(self, topology: Topology) -> str:
        """In words: `L1 S1>S3`, `sums at S1`."""
        if self.kind == "link":
            name = topology.graph.edges[self.at, self.to].get("name")
            return f"{name} {self.at}>{self.to}" if name else f"{self.at}>{self.to}"
        return f"{'sums' if self.kind == 'capacity' else self.kind} at {self.at}"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Who sums whose gradients, by which ways, at a rate of gradient payload in Gb/s that is everyone's.

    homes: each worker's switch, or the root. parents: of each switch that sums here, but a root. up: the way of each
    worker and each switch to its home or parent, both ends named. down: the way of each worker's results from the root,
    or nothing where results go back as gradients came.
    """

    rate_gbps: float
    root: str
    homes: Mapping[str, str]
    parents: Mapping[str, str]
    up: Mapping[str, tuple[str, ...]]
    down: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def children(self, switch: str) -> list[str]:
        """Switches whose parent this is."""
        return [child for child, parent in self.parents.items() if parent == switch]

    def members(self, node: str) -> list[str]:
        """Workers whose home this is."""
        return [worker for worker, home in self.homes.items() if home == node]

    def below(self, node: str) -> list[str]:
        """Workers whose gradients are in what this node passes on."""
        return self.members(node) + [worker for child in self.children(node) for worker in self.below(child)]

    @property
    def summing(self) -> list[str]:
        """Switches, and a ps as root."""
        return list(dict.fromkeys([*self.parents, self.root]))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Trees that share the gradient in proportion to their rates, or one. bound_gbps: proved, none of this scheme is
    faster; infinite if nothing is. prices: what one more Gb/s of a resource that binds is worth, in Gb/s of rate, by
    the linear program with whole numbers fixed. seconds: to find and prove. upgraded: switches that had to be given
    this capacity in Gb/s for it. note: what the table is to say beside it."""

    scheme: str
    trees: tuple[Tree, ...]
    bound_gbps: float
    prices: Mapping[Resource, float] = field(default_factory=dict)
    seconds: float = 0.0
    upgraded: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def rate_gbps(self) -> float:
        return sum(tree.rate_gbps for tree in self.trees)

    @property
    def gap(self) -> float:
        """How much faster, at most, another could be: 0.1 is a tenth."""
        return max(0.0, self.bound_gbps / self.rate_gbps - 1) if self.rate_gbps else float("inf")

    def json(self) -> dict[str, Any]:
        """Of plain lists and objects."""
        return {
            "scheme": self.scheme,
            "rate_gbps": self.rate_gbps,
            "bound_gbps": self.bound_gbps if self.bound_gbps < float("inf") else None,
            "trees": [
                {
                    "rate_gbps": tree.rate_gbps,
                    "root": tree.root,
                    "homes": dict(tree.homes),
                    "parents": dict(tree.parents),
                    "up": {child: list(path) for child, path in tree.up.items()},
                    "down": {worker: list(path) for worker, path in tree.down.items()},
                }
                for tree in self.trees
            ],
        }


def capacities(topology: Topology) -> dict[Resource, float]:
    """All resources there are, each with what it has, in Gb/s."""
    found = {}
    for a, b in topology.graph.edges:
        for at, to in ((a, b), (b, a)):
            found[Resource("link", at, to)] = topology.free_gbps(a, b)
    for switch in topology.aggregators:
        data = topology.graph.nodes[switch]
        found[Resource("capacity", switch)] = float(data["capacity_gbps"])
        if "slots" in data:
            found[Resource("slots", switch)] = topology.job.slots_gbps(data["slots"])
    if topology.ps and "ingress_gbps" in topology.graph.nodes[topology.ps]:
        found[Resource("ingress", topology.ps)] = float(topology.graph.nodes[topology.ps]["ingress_gbps"])
    return found


def loads(topology: Topology, tree: Tree) -> dict[Resource, float]:
    """What a tree puts on resources for each Gb/s of its rate."""
    job, found = topology.job, defaultdict[Resource, float](float)
    for child, path in tree.up.items():
        size = job.partial_size if child in tree.parents else job.gradient_size
        for at, to in pairwise(path):
            found[Resource("link", at, to)] += size
            if job.multicast:
                found[Resource("link", to, at)] += job.result_size
        end = tree.parents.get(child) or tree.homes[child]
        found[Resource("ingress" if end == topology.ps else "capacity", end)] += size
    for path in tree.down.values():
        for at, to in pairwise(path):
            found[Resource("link", at, to)] += job.result_size
    for switch in tree.summing:
        if switch != topology.ps:
            found[Resource("slots", switch)] += 1
    return dict(found)


def fitted(topology: Topology, tree: Tree) -> Tree:
    """The tree at the highest rate that all of its resources allow."""
    room = capacities(topology)
    rate = min(
        (room[resource] / load for resource, load in loads(topology, tree).items() if resource in room), default=0.0
    )
    return replace(tree, rate_gbps=rate)


def used(topology: Topology, trees: tuple[Tree, ...]) -> dict[Resource, float]:
    """Gb/s that trees put on resources together."""
    found = defaultdict[Resource, float](float)
    for tree in trees:
        for resource, load in loads(topology, tree).items():
            found[resource] += load * tree.rate_gbps
    return dict(found)

"""Aggregation trees and plans, the resources that they use, and the rate that these resources leave."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from iswitch.plan.topology.topology import Topology

__all__ = ["Plan", "Resource", "Tree", "at_full_rate", "capacities", "fit_rates", "loads", "scheme_name", "total_loads"]


def scheme_name(levels: int | None, several: bool = False) -> str:
    """Return the name of a kind of plan: of one tree or several, whose streams pass so many levels of switches."""
    return f"{'several trees' if several else 'one tree'}, {'one level' if levels == 1 else 'several levels'}"


class Resource(NamedTuple):
    """Something whose capacity limits a plan.

    kind : ``"link"``, the cable from `at` to `to` in this direction; ``"capacity"``, the streams that switch `at` can
        sum; ``"slots"``, the segments that it can have in flight, as a rate; ``"ingress"``, the streams that the ps
        can take.
    to : the end of a link; empty for the others.
    """

    kind: str
    at: str
    to: str = ""

    def describe(self, topology: Topology) -> str:
        """Return the resource in words, such as ``L1 S1>S3`` or ``sums at S1``."""
        if self.kind == "link":
            name = topology.graph.edges[self.at, self.to].get("name")
            return f"{name} {self.at}>{self.to}" if name else f"{self.at}>{self.to}"
        return f"{'sums' if self.kind == 'capacity' else self.kind} at {self.at}"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Which switch sums which gradients, over which paths, and at which rate.

    Parameters
    ----------
    rate_gbps : float
        Gb/s of gradient payload, the same for every worker.
    root : str
        The node at which sums end: a switch, or the ps.
    homes : mapping of str to str
        For each worker the node that sums its gradient: a switch, or the root.
    parents : mapping of str to str
        For each switch that sums, but the root, the node that sums its partial sums.
    up : mapping of str to tuple of str
        For each worker and each switch that sums, the path to its home or parent, with both ends.
    down : mapping of str to tuple of str
        For each worker the path of its results from the root. Empty if results return along the tree.
    """

    rate_gbps: float
    root: str
    homes: Mapping[str, str]
    parents: Mapping[str, str]
    up: Mapping[str, tuple[str, ...]]
    down: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def children(self, switch: str) -> list[str]:
        """Return the switches whose parent is `switch`."""
        return [child for child, parent in self.parents.items() if parent == switch]

    def members(self, node: str) -> list[str]:
        """Return the workers whose home is `node`."""
        return [worker for worker, home in self.homes.items() if home == node]

    def workers_below(self, node: str) -> list[str]:
        """Return the workers whose gradients are in the sum of `node`."""
        below = [worker for child in self.children(node) for worker in self.workers_below(child)]
        return self.members(node) + below

    @property
    def summing_nodes(self) -> list[str]:
        """The switches that sum, and the root."""
        return list(dict.fromkeys([*self.parents, self.root]))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One tree, or several that share the gradient in proportion to their rates.

    Parameters
    ----------
    scheme : str
        The kind of plan, for people.
    trees : tuple of Tree
        The trees, the fastest first.
    bound_gbps : float
        No plan of this scheme is faster, which is proved; infinite if nothing is proved.
    shadow_prices : mapping of Resource to float
        For each bottleneck the Gb/s of rate that 1 Gb/s more of it alone would gain.
    seconds : float
        Time to find and prove the plan.
    upgraded : mapping of str to float
        Switches that the plan upgrades, and their new capacity in Gb/s.
    note : str
        A remark to print below the table of schemes.
    """

    scheme: str
    trees: tuple[Tree, ...]
    bound_gbps: float
    shadow_prices: Mapping[Resource, float] = field(default_factory=dict)
    seconds: float = 0.0
    upgraded: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def rate_gbps(self) -> float:
        """Gb/s of gradient payload of each worker, over all trees."""
        return sum(tree.rate_gbps for tree in self.trees)

    @property
    def gap(self) -> float:
        """By which part of its rate another plan could be faster at most; 0.1 is a tenth."""
        return max(0.0, self.bound_gbps / self.rate_gbps - 1) if self.rate_gbps else float("inf")

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as lists and dicts, for JSON."""
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


_capacities: WeakKeyDictionary[Topology, dict[Resource, float]] = WeakKeyDictionary()


def capacities(topology: Topology) -> Mapping[Resource, float]:
    """Return the Gb/s of every resource of a topology."""
    if topology in _capacities:
        return _capacities[topology]
    found = _capacities[topology] = dict[Resource, float]()
    for a, b in topology.graph.edges:
        for at, to in ((a, b), (b, a)):
            found[Resource("link", at, to)] = topology.free_gbps(at, to)
    for switch in topology.aggregators:
        data = topology.graph.nodes[switch]
        found[Resource("capacity", switch)] = float(data["capacity_gbps"])
        slots = topology.slots(switch)
        if slots is not None and topology.job.round_trip_us:
            found[Resource("slots", switch)] = topology.job.slots_gbps(slots)
    if topology.ps and "ingress_gbps" in topology.graph.nodes[topology.ps]:
        found[Resource("ingress", topology.ps)] = float(topology.graph.nodes[topology.ps]["ingress_gbps"])
    return found


def loads(topology: Topology, tree: Tree) -> dict[Resource, float]:
    """Return the Gb/s on each resource for 1 Gb/s of a tree's rate."""
    job, parents = topology.job, tree.parents
    found = defaultdict[Resource, float](float)
    for size, children in (
        (job.gradient_size, [child for child in tree.up if child not in parents]),
        (job.partial_size, [child for child in tree.up if child in parents]),
    ):
        arcs = Counter(arc for child in children for arc in pairwise(tree.up[child]))
        for (at, to), count in arcs.items():
            found[Resource("link", at, to)] += count * size
            if job.multicast:
                found[Resource("link", to, at)] += count * job.result_size
        for end, count in Counter(parents.get(child) or tree.homes[child] for child in children).items():
            found[Resource("ingress" if end == topology.ps else "capacity", end)] += count * size
    for (at, to), count in Counter(arc for path in tree.down.values() for arc in pairwise(path)).items():
        found[Resource("link", at, to)] += count * job.result_size
    for node in tree.summing_nodes:
        if node != topology.ps:
            found[Resource("slots", node)] += 1
    return dict(found)


def at_full_rate(topology: Topology, tree: Tree) -> Tree:
    """Return the tree at the highest rate that its resources allow."""
    available = capacities(topology)
    rate = min(
        (available[resource] / load for resource, load in loads(topology, tree).items() if resource in available),
        default=0.0,
    )
    return replace(tree, rate_gbps=rate)


def total_loads(topology: Topology, trees: tuple[Tree, ...]) -> dict[Resource, float]:
    """Return the Gb/s that trees at their rates put on resources together."""
    found = defaultdict[Resource, float](float)
    for tree in trees:
        for resource, load in loads(topology, tree).items():
            found[resource] += load * tree.rate_gbps
    return dict(found)


def fit_rates(topology: Topology, trees: Sequence[Tree]) -> tuple[Tree, ...]:
    """Return the trees, the fastest first, at rates that overload nothing and stay in proportion.

    A single tree gets its full rate. Several are only lowered, if rounding or a solver's tolerance made them too fast.
    """
    if len(trees) == 1:
        return (at_full_rate(topology, trees[0]),)
    available, total = capacities(topology), total_loads(topology, tuple(trees))
    scale = min(
        (available[resource] / load for resource, load in total.items() if resource in available and load), default=1.0
    )
    scaled = (replace(tree, rate_gbps=tree.rate_gbps * min(scale, 1.0)) for tree in trees)
    return tuple(sorted(scaled, key=lambda tree: -tree.rate_gbps))

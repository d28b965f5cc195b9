"""An independent check of a plan: every load is recomputed from its paths and trees alone.

The check takes the plan as the JSON that users get, and the topology as node-link JSON. It shares no code with the
planner.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from typing import Any

__all__ = ["check_plan"]

SLACK = 1e-6
"""Relative difference that rounding may cause."""


def check_plan(
    network: Mapping[str, Any], plan: Mapping[str, Any], *, levels: int | None = None
) -> tuple[dict[str, float], list[str]]:
    """Return the loads of a plan, and what is wrong with it.

    Parameters
    ----------
    network : mapping
        The topology as node-link JSON with `edges`.
    plan : mapping
        The plan, as from `Plan.to_dict`.
    levels : int, optional
        Most switches that may sum a gradient before the root does.

    Returns
    -------
    loads : dict of str to float
        Gb/s, sorted by name: ``a>b`` for a direction of a cable, ``sum a`` for the streams that a switch sums or the ps
        takes, ``slots a`` for the rate that the switch's slots must carry.
    violations : list of str
        Sentences about the plan; none if it holds.
    """
    check = _Check(network, levels)
    for tree in plan["trees"]:
        check.add_tree(tree)
    check.compare_with_limits(len(plan["trees"]))
    check.compare_with_capacities()
    check.compare_with_rate(plan)
    return dict(sorted(check.loads.items())), check.violations


class _Check:
    """Loads and violations of the trees so far."""

    def __init__(self, network: Mapping[str, Any], levels: int | None):
        self.levels, self.job = levels, network["graph"]
        self.nodes = {node["id"]: node for node in network["nodes"]}
        self.cables: dict[tuple[str, str], float] = {}
        for edge in network["edges"]:
            for a, b in ((edge["source"], edge["target"]), (edge["target"], edge["source"])):
                rate = edge["sender_gbps"] if edge.get("sender") == a else edge["bw_gbps"]
                self.cables[a, b] = rate - edge.get("reserved_gbps", 0)
        overhead = self.job["overhead_bytes"] / self.job["payload_bytes"]
        partial_sum = self.job["uplink_bytes_per_element"] / 4 + overhead
        self.sizes = {"gradient": 1 + overhead, "result": 1 + overhead, "sum": partial_sum}
        self.workers = {name for name, node in self.nodes.items() if node.get("role") == "worker"}
        self.servers = [name for name, node in self.nodes.items() if node.get("role") == "ps"]
        self.rate = 0.0
        self.loads: dict[str, float] = defaultdict(float)
        self.reserved: dict[str, int] = defaultdict(int)
        self.violations: list[str] = []

    def add_tree(self, tree: Mapping[str, Any]) -> None:
        """Add the loads of a tree, and check its structure."""
        rate, root, homes, parents = tree["rate_gbps"], tree["root"], tree["homes"], tree["parents"]
        self.rate += rate
        if not rate > 0:
            self.violations.append(f"a tree's rate must be above 0, not {rate}")
        if homes.keys() != self.workers:
            difference = sorted(homes.keys() ^ self.workers)
            self.violations.append(f"workers of the tree are not those of the topology: {difference}")
        if self.servers and root != self.servers[0]:
            self.violations.append(f"the root must be the ps, not {root}")
        if root in parents:
            self.violations.append(f"the root {root} has a parent")
        returning = self.job["return_path"] == "multicast"
        members: dict[str, int] = defaultdict(int)
        for worker, home in homes.items():
            path = tree["up"].get(worker, [])
            self._add_stream(f"the gradient of {worker}", path, worker, home, "gradient", rate, returning)
            self.loads[f"sum {home}"] += rate * self.sizes["gradient"]
            members[home] += 1
            self._check_levels(worker, home, root, parents)
        for switch, parent in parents.items():
            path = tree["up"].get(switch, [])
            self._add_stream(f"the sum of {switch}", path, switch, parent, "sum", rate, returning)
            self.loads[f"sum {parent}"] += rate * self.sizes["sum"]
            members[parent] += 1
        if unknown := tree["up"].keys() - homes.keys() - parents.keys():
            self.violations.append(f"paths of unknown nodes: {sorted(unknown)}")
        self._add_results(tree)
        for node in sorted({*parents, *homes.values(), *parents.values(), root}):
            self._check_sum(node, members[node], rate, root)

    def _check_levels(self, worker: str, home: str, root: str, parents: Mapping[str, str]) -> None:
        """Follow parents from a worker's home to the root."""
        summed_by: list[str] = []
        while home != root and home in parents and home not in summed_by:
            summed_by.append(home)
            home = parents[home]
        if home != root:
            self.violations.append(f"the gradient of {worker} does not reach the root: {summed_by} ends at {home}")
        if self.levels is not None and len(summed_by) > self.levels:
            self.violations.append(
                f"the gradient of {worker} is summed by {len(summed_by)} switches before the root, "
                f"not {self.levels} at most"
            )

    def _add_results(self, tree: Mapping[str, Any]) -> None:
        """Add results that have paths of their own."""
        if self.job["return_path"] == "unicast":
            for worker in tree["homes"]:
                path = tree["down"].get(worker, [])
                name = f"the result of {worker}"
                self._add_stream(name, path, tree["root"], worker, "result", tree["rate_gbps"], False)
        elif tree["down"]:
            self.violations.append("results must not have paths of their own")

    def _add_stream(
        self, name: str, path: list[str], start: str, end: str, size: str, rate: float, returning: bool
    ) -> None:
        """Check the path of a stream and add its load; if `returning`, also that of results in the other direction."""
        if not path or path[0] != start or path[-1] != end:
            self.violations.append(f"{name} must go from {start} to {end}, not {path}")
            return
        if any(self.nodes[node]["kind"] == "host" for node in path[1:-1]):
            self.violations.append(f"{name} passes through a host: {path}")
        if len(set(path)) != len(path):
            self.violations.append(f"{name} visits a node twice: {path}")
        for at, to in pairwise(path):
            if (at, to) not in self.cables:
                self.violations.append(f"{name} takes a cable that does not exist: {at}>{to}")
            self.loads[f"{at}>{to}"] += rate * self.sizes[size]
            if returning:
                self.loads[f"{to}>{at}"] += rate * self.sizes["result"]

    def _check_sum(self, name: str, members: int, rate: float, root: str) -> None:
        """Check that a node can sum so many members, and add the load of its slots. The ps has no slots."""
        node = self.nodes[name]
        if name in self.servers or (not self.servers and node["kind"] == "host" and name == root):
            return
        if not node.get("aggregates"):
            self.violations.append(f"{name} does not aggregate")
        if members > node.get("members", members):
            self.violations.append(f"{name} can have {node['members']} members, not {members}")
        self.loads[f"slots {name}"] += rate
        # A tree reserves whole slots, at least one; the same rounding as that of loads.
        in_flight = rate * self.job["round_trip_us"] / (self.job["payload_bytes"] * 8e-3)
        self.reserved[name] += max(ceil(in_flight * (1 - SLACK)), 1)

    def compare_with_limits(self, trees: int) -> None:
        """Report more trees, or more slots at a switch, than the job may have."""
        most = self.job.get("max_trees", trees)
        if trees > most:
            self.violations.append(f"the plan has {trees} trees, but max_trees is {most}")
        for name, slots in self.reserved.items():
            if slots > self.job.get("max_slots", slots):
                self.violations.append(f"{name} reserves {slots} slots, but max_slots is {self.job['max_slots']}")

    def compare_with_capacities(self) -> None:
        """Report every load above its capacity."""
        for name, load in self.loads.items():
            capacity = self._capacity(name)
            if load > capacity * (1 + SLACK):
                self.violations.append(f"{name} carries {load:.6g} of {capacity:.6g} Gb/s")

    def _capacity(self, name: str) -> float:
        """Return the Gb/s of the resource that a load's name means."""
        if ">" in name:
            at, _, to = name.partition(">")
            return self.cables.get((at, to), float("inf"))
        kind, _, node_name = name.partition(" ")
        node = self.nodes[node_name]
        if kind == "sum":
            return float(node.get("capacity_gbps" if node["kind"] == "switch" else "ingress_gbps", float("inf")))
        slots = min((most for most in (node.get("slots"), self.job.get("max_slots")) if most), default=None)
        round_trip_us = self.job["round_trip_us"]
        if not slots or not round_trip_us:
            return float("inf")
        return float(slots * self.job["payload_bytes"] * 8e-3 / round_trip_us)

    def compare_with_rate(self, plan: Mapping[str, Any]) -> None:
        """Report a rate that is not the sum over the trees, or is above its bound."""
        if abs(self.rate - plan["rate_gbps"]) > SLACK * max(self.rate, 1):
            self.violations.append(
                f"the rate must be {self.rate:.6g}, the sum over the trees, not {plan['rate_gbps']:.6g}"
            )
        bound = plan.get("bound_gbps")
        if bound is not None and self.rate > bound * (1 + SLACK):
            self.violations.append(f"the rate {self.rate:.6g} is above its bound, {bound:.6g}")

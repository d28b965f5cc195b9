"""An independent check of a plan: every load is recomputed from its paths and trees alone.

The check takes the plan as the JSON that users get, and the topology as node-link JSON. It shares no code with the
planner.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

__all__ = ["check_plan"]

SLACK = 1e-6


def check_plan(
    network: Mapping[str, Any], plan: Mapping[str, Any], *, levels: int | None = None
) -> tuple[dict[str, float], list[str]]:
    """Return the loads of a plan, and what is violations with it.

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
    nodes = {node["id"]: node for node in network["nodes"]}
    cables = {}
    for edge in network["edges"]:
        for a, b in ((edge["source"], edge["target"]), (edge["target"], edge["source"])):
            cables[a, b] = edge["bw_gbps"] - edge.get("reserved_gbps", 0)
    job = network["graph"]
    overhead = job["overhead_bytes"] / job["payload_bytes"]
    sizes = {"gradient": 1 + overhead, "result": 1 + overhead, "sum": job["uplink_bytes_per_element"] / 4 + overhead}
    workers = {name for name, node in nodes.items() if node.get("role") == "worker"}
    servers = [name for name, node in nodes.items() if node.get("role") == "ps"]
    loads: dict[str, float] = defaultdict(float)
    violations: list[str] = []
    total = 0.0

    def add_stream(subject: str, path: list[str], start: str, end: str, size: str, rate: float, back: bool) -> None:
        if not path or path[0] != start or path[-1] != end:
            violations.append(f"{subject} must go from {start} to {end}, not {path}")
            return
        if any(nodes[node]["kind"] == "host" for node in path[1:-1]):
            violations.append(f"{subject} passes through a host: {path}")
        if len(set(path)) != len(path):
            violations.append(f"{subject} visits a node twice: {path}")
        for at, to in pairwise(path):
            if (at, to) not in cables:
                violations.append(f"{subject} takes a cable that does not exist: {at}>{to}")
            loads[f"{at}>{to}"] += rate * sizes[size]
            if back:
                loads[f"{to}>{at}"] += rate * sizes["result"]

    for tree in plan["trees"]:
        rate, root, homes, parents = tree["rate_gbps"], tree["root"], tree["homes"], tree["parents"]
        multicast = job["return_path"] == "multicast"
        total += rate
        if not rate > 0:
            violations.append(f"a tree's rate must be above 0, not {rate}")
        if homes.keys() != workers:
            violations.append(f"workers of the tree are not those of the topology: {sorted(homes.keys() ^ workers)}")
        if servers and root != servers[0]:
            violations.append(f"the root must be the ps, not {root}")
        if root in parents:
            violations.append(f"the root {root} has a parent")
        members: dict[str, int] = defaultdict(int)
        for worker, home in homes.items():
            add_stream(
                f"the gradient of {worker}", tree["up"].get(worker, []), worker, home, "gradient", rate, multicast
            )
            loads[f"sum {home}"] += rate * sizes["gradient"]
            members[home] += 1
            seen: list[str] = []
            while home != root and home in parents and home not in seen:
                seen.append(home)
                home = parents[home]
            if home != root:
                violations.append(f"the gradient of {worker} does not reach the root: {seen} ends at {home}")
            if levels is not None and len(seen) > levels:
                violations.append(
                    f"the gradient of {worker} is summed by {len(seen)} switches before the root, not {levels} at most"
                )
        for switch, parent in parents.items():
            add_stream(f"the sum of {switch}", tree["up"].get(switch, []), switch, parent, "sum", rate, multicast)
            loads[f"sum {parent}"] += rate * sizes["sum"]
            members[parent] += 1
        if extra := tree["up"].keys() - homes.keys() - parents.keys():
            violations.append(f"paths of unknown nodes: {sorted(extra)}")
        if job["return_path"] == "unicast":
            for worker in homes:
                add_stream(f"the result of {worker}", tree["down"].get(worker, []), root, worker, "result", rate, False)
        elif tree["down"]:
            violations.append("results must not have paths of their own")
        for switch in sorted({*parents, *homes.values(), *parents.values(), root}):
            node = nodes[switch]
            if switch in servers or (not servers and node["kind"] == "host" and switch == root):
                continue
            if not node.get("aggregates"):
                violations.append(f"{switch} does not aggregate")
            if members[switch] > node.get("members", members[switch]):
                violations.append(f"{switch} can have {node['members']} members, not {members[switch]}")
            loads[f"slots {switch}"] += rate
    for name, load in loads.items():
        kind, _, switch = name.partition(" ")
        if ">" in name:
            at, _, to = name.partition(">")
            capacity = cables.get((at, to), float("inf"))
        elif kind == "sum":
            capacity = nodes[switch].get(
                "capacity_gbps" if nodes[switch]["kind"] == "switch" else "ingress_gbps", float("inf")
            )
        else:
            slots = nodes[switch].get("slots")
            capacity = (
                slots * job["payload_bytes"] * 8e-3 / job["round_trip_us"]
                if slots and job["round_trip_us"]
                else float("inf")
            )
        if load > capacity * (1 + SLACK):
            violations.append(f"{name} carries {load:.6g} of {capacity:.6g} Gb/s")
    if abs(total - plan["rate_gbps"]) > SLACK * max(total, 1):
        violations.append(f"the rate must be {total:.6g}, the sum over the trees, not {plan['rate_gbps']:.6g}")
    bound = plan.get("bound_gbps")
    if bound is not None and total > bound * (1 + SLACK):
        violations.append(f"the rate {total:.6g} is above its bound, {bound:.6g}")
    return dict(sorted(loads.items())), violations

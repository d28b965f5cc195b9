"""An independent look at a plan: every load recomputed from its ways and trees alone.

Takes the plan as the JSON that is handed out and the topology as node-link JSON, and shares no code with what made
them.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

__all__ = ["examine"]

SLACK = 1e-6


def examine(
    network: Mapping[str, Any], plan: Mapping[str, Any], *, levels: int | None = None
) -> tuple[dict[str, float], list[str]]:
    """(load of everything that carries something in Gb/s, complaints; none: the plan holds). network: node-link JSON
    with `edges`. Keys of loads, sorted, are `a>b` for a direction of a cable, `sum a` for what a switch adds up or the
    ps takes, `slots a` for the rate that its slots must carry. levels: the most switches before the root that a
    gradient is summed by."""
    nodes = {node["id"]: node for node in network["nodes"]}
    cables = {}
    for edge in network["edges"]:
        for a, b in ((edge["source"], edge["target"]), (edge["target"], edge["source"])):
            cables[a, b] = edge["bw_gbps"] - edge.get("reserved_gbps", 0)
    job = network["graph"]
    head = job["overhead_bytes"] / job["payload_bytes"]
    sizes = {"gradient": 1 + head, "result": 1 + head, "sum": job["uplink_bytes_per_element"] / 4 + head}
    workers = {name for name, node in nodes.items() if node.get("role") == "worker"}
    servers = [name for name, node in nodes.items() if node.get("role") == "ps"]
    loads: dict[str, float] = defaultdict(float)
    wrong: list[str] = []
    total = 0.0

    def travel(what: str, path: list[str], start: str, end: str, size: str, rate: float, back: bool) -> None:
        if not path or path[0] != start or path[-1] != end:
            wrong.append(f"{what} must go from {start} to {end}, not {path}")
            return
        if any(nodes[node]["kind"] == "host" for node in path[1:-1]):
            wrong.append(f"{what} passes through a host: {path}")
        if len(set(path)) != len(path):
            wrong.append(f"{what} goes round: {path}")
        for at, to in pairwise(path):
            if (at, to) not in cables:
                wrong.append(f"{what} takes a cable that is none: {at}>{to}")
            loads[f"{at}>{to}"] += rate * sizes[size]
            if back:
                loads[f"{to}>{at}"] += rate * sizes["result"]

    for tree in plan["trees"]:
        rate, root, homes, parents = tree["rate_gbps"], tree["root"], tree["homes"], tree["parents"]
        multicast = job["return_path"] == "multicast"
        total += rate
        if not rate > 0:
            wrong.append(f"a tree's rate must be above 0, not {rate}")
        if homes.keys() != workers:
            wrong.append(f"workers of the tree are not those of the topology: {sorted(homes.keys() ^ workers)}")
        if servers and root != servers[0]:
            wrong.append(f"the root must be the ps, not {root}")
        if root in parents:
            wrong.append(f"the root {root} has a parent")
        members: dict[str, int] = defaultdict(int)
        for worker, home in homes.items():
            travel(f"the gradient of {worker}", tree["up"].get(worker, []), worker, home, "gradient", rate, multicast)
            loads[f"sum {home}"] += rate * sizes["gradient"]
            members[home] += 1
            seen: list[str] = []
            while home != root and home in parents and home not in seen:
                seen.append(home)
                home = parents[home]
            if home != root:
                wrong.append(f"the gradient of {worker} does not get to the root: {seen} ends at {home}")
            if levels is not None and len(seen) > levels:
                wrong.append(
                    f"the gradient of {worker} is summed by {len(seen)} switches before the root, not {levels} at most"
                )
        for switch, parent in parents.items():
            travel(f"the sum of {switch}", tree["up"].get(switch, []), switch, parent, "sum", rate, multicast)
            loads[f"sum {parent}"] += rate * sizes["sum"]
            members[parent] += 1
        if extra := tree["up"].keys() - homes.keys() - parents.keys():
            wrong.append(f"ways of nobody: {sorted(extra)}")
        if job["return_path"] == "unicast":
            for worker in homes:
                travel(f"the result of {worker}", tree["down"].get(worker, []), root, worker, "result", rate, False)
        elif tree["down"]:
            wrong.append("results have no ways of their own here")
        for switch in sorted({*parents, *homes.values(), *parents.values(), root}):
            node = nodes[switch]
            if switch in servers or (not servers and node["kind"] == "host" and switch == root):
                continue
            if not node.get("aggregates"):
                wrong.append(f"{switch} does not aggregate")
            if members[switch] > node.get("members", members[switch]):
                wrong.append(f"{switch} takes {node['members']} members, not {members[switch]}")
            loads[f"slots {switch}"] += rate
    for name, load in loads.items():
        kind, _, switch = name.partition(" ")
        if ">" in name:
            at, _, to = name.partition(">")
            room = cables.get((at, to), float("inf"))
        elif kind == "sum":
            room = nodes[switch].get(
                "capacity_gbps" if nodes[switch]["kind"] == "switch" else "ingress_gbps", float("inf")
            )
        else:
            held = nodes[switch].get("slots")
            room = (
                held * job["payload_bytes"] * 8e-3 / job["round_trip_us"]
                if held and job["round_trip_us"]
                else float("inf")
            )
        if load > room * (1 + SLACK):
            wrong.append(f"{name} carries {load:.6g} of {room:.6g} Gb/s")
    if abs(total - plan["rate_gbps"]) > SLACK * max(total, 1):
        wrong.append(f"the rate must be {total:.6g}, the sum of the trees', not {plan['rate_gbps']:.6g}")
    bound = plan.get("bound_gbps")
    if bound is not None and total > bound * (1 + SLACK):
        wrong.append(f"the rate {total:.6g} is above what is said to be its bound, {bound:.6g}")
    return dict(sorted(loads.items())), wrong

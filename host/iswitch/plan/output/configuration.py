"""The configuration that a plan gives to each switch and worker, and to the emulated fabric."""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil
from typing import Any

import networkx as nx

from iswitch.plan.output.stripes import round_to_stripes
from iswitch.plan.solver.tree import Plan, Tree
from iswitch.plan.topology.graph_file import to_json
from iswitch.plan.topology.topology import Job, Topology, natural_key

__all__ = [
    "JOBS_MAX",
    "MEMBERS_MAX",
    "PORTS_MAX",
    "format_ranges",
    "list_changes",
    "make_configuration",
    "with_next_epoch",
]

MEMBERS_MAX, PORTS_MAX, JOBS_MAX = 32, 16, 16
"""Limits of an iswitch, see `iswitch.Config`."""
FIRST_MAC, FIRST_IP = 0x02_00_00_00_00_00, ipaddress.IPv4Address("10.0.0.1")


def format_ranges(ranks: Iterable[int]) -> str:
    """Return ranks as ranges, such as ``0-3,7``: the form that `--leaf` of the emulated board accepts."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _power_of_two(value: int) -> int:
    """Return the least power of two that is not below `value`."""
    return 1 << max(value - 1, 0).bit_length()


class _Places:
    """Numbers of switches, ports and ranks, and addresses, in the order of names. Ports to hosts come first."""

    def __init__(self, topology: Topology, first_mac: int, first_ip: ipaddress.IPv4Address):
        self.topology = topology
        self.number = {switch: number for number, switch in enumerate(topology.switches)}
        key = lambda node: (node in self.number, natural_key(node))
        self.ports = {
            switch: {near: port for port, near in enumerate(sorted(topology.graph[switch], key=key))}
            for switch in self.number
        }
        self.rank = {worker: rank for rank, worker in enumerate(topology.workers)}
        self.mac = {switch: (first_mac + number).to_bytes(6).hex(":") for switch, number in self.number.items()}
        self.ip = {switch: str(first_ip + number) for switch, number in self.number.items()}

    def address(self, node: str) -> dict[str, Any]:
        """Return how a stream reaches a node: a switch by its number and addresses, a host by its name."""
        if node not in self.number:
            return {"host": node}
        return {"switch": node, "number": self.number[node], "mac": self.mac[node], "ip": self.ip[node]}


def make_configuration(
    topology: Topology,
    plan: Plan,
    *,
    epoch: int = 1,
    scale: float = 1.0,
    wired: Topology | None = None,
    first_mac: int = FIRST_MAC,
    first_ip: ipaddress.IPv4Address = FIRST_IP,
) -> dict[str, Any]:
    """Return the configuration of all switches and workers, for JSON.

    It has for each switch its addresses, its ports, and its role in each job: parent with port and addresses, ranks
    below, members by port, slots. It has for each worker its port, the node that it sends to, and its share. It has the
    cables in use, and the arguments of `python -m sim.emulator` that build this fabric, or the reasons why the emulator
    cannot. Tree k is job k. It takes `share` of all fragments, and `stripes.fragments[k]` of every `stripes.of`.

    Parameters
    ----------
    topology : Topology
        The topology that was planned.
    plan : Plan
        The plan.
    epoch : int
        The number of this configuration.
    scale : float
        Factor on the rates of cables in the arguments for the emulator.
    wired : Topology, optional
        The topology before something was removed. What is left keeps its port, number and address.
    first_mac : int
        MAC address of the first switch; others count up.
    first_ip : ipaddress.IPv4Address
        IP address of the first switch; others count up.
    """
    places = _Places(wired or topology, first_mac, first_ip)
    rate = plan.rate_gbps
    switches: dict[str, Any] = {
        switch: {
            "number": number,
            "mac": places.mac[switch],
            "ip": places.ip[switch],
            "ports": {str(port): near for near, port in places.ports[switch].items()},
            "jobs": {},
        }
        for switch, number in places.number.items()
    }
    workers: dict[str, Any] = {}
    for worker, rank in places.rank.items():
        workers[worker] = {"rank": rank, "jobs": {}}
    for job, tree in enumerate(plan.trees):
        for switch in tree.summing_nodes:
            if switch in places.number:
                switches[switch]["jobs"][str(job)] = _role(topology, places, tree, switch)
        for worker, home in tree.homes.items():
            path = tree.up[worker]
            plugged = (
                {"switch": path[1], "number": places.number[path[1]], "port": places.ports[path[1]][worker]}
                if path[1:]
                else None
            )
            workers[worker]["jobs"][str(job)] = {
                "plugged": plugged,
                "sends_to": places.address(home),
                "share": round(tree.rate_gbps / rate, 9),
                "rate_gbps": round(tree.rate_gbps, 9),
                "way": list(path),
            }
    links = _links(topology, places, plan)
    return {
        "epoch": epoch,
        "scheme": plan.scheme,
        "rate_gbps": round(rate, 9),
        "topology": hashlib.sha256(to_json(topology).encode()).hexdigest()[:16],
        "world": len(places.rank),
        "stripes": round_to_stripes(topology, plan)._asdict(),
        "switches": switches,
        "workers": workers,
        "links": links,
        "emulator": _emulator(topology, places, plan, links, scale),
    }


def _role(topology: Topology, places: _Places, tree: Tree, switch: str) -> dict[str, Any]:
    """Return the role of a switch in the job of a tree."""
    job, ports = topology.job, places.ports[switch]
    entry_port = lambda child: ports[tree.up[child][-2]] if len(tree.up[child]) > 1 else None
    members: list[dict[str, Any]] = [
        {"worker": worker, "rank": places.rank[worker], "port": entry_port(worker)} for worker in tree.members(switch)
    ]
    members += [
        {
            "switch": child,
            "ranks": sorted(places.rank[worker] for worker in tree.workers_below(child)),
            "port": entry_port(child),
        }
        for child in tree.children(switch)
    ]
    parent = None
    if switch in tree.parents:
        path = tree.up[switch]
        parent = places.address(tree.parents[switch]) | {"port": ports[path[1]], "way": list(path)}
    slots = _slots(job, tree)
    return {
        "role": "leaf" if parent else "root",
        "parent": parent,
        "ranks": sorted(places.rank[worker] for worker in tree.workers_below(switch)),
        "members": members,
        "slots": slots,
        "window": _power_of_two(slots),
    }


def _slots(job: Job, tree: Tree) -> int:
    """Return the segments that are in flight along a tree."""
    return max(ceil(tree.rate_gbps * job.round_trip_us / (job.payload_bytes * 8e-3) - 1e-9), 1)


def _links(topology: Topology, places: _Places, plan: Plan) -> list[dict[str, Any]]:
    """Return the cables between switches that carry something."""
    carried = {
        frozenset(hop)
        for tree in plan.trees
        for path in (*tree.up.values(), *tree.down.values())
        for hop in pairwise(path)
    }
    ends = sorted(
        (sorted(hop, key=natural_key) for hop in carried if hop <= places.number.keys()),
        key=lambda pair: [natural_key(end) for end in pair],
    )
    return [
        {
            "name": topology.cable_label(a, b),
            "ends": [a, b],
            "places": [[places.number[a], places.ports[a][b]], [places.number[b], places.ports[b][a]]],
            "bw_gbps": topology.free_gbps(a, b),
        }
        for a, b in ends
    ]


def _emulator(
    topology: Topology, places: _Places, plan: Plan, links: list[dict[str, Any]], scale: float
) -> dict[str, Any]:
    """Return the emulator's arguments, or the reasons why it cannot run the plan."""
    reasons = _obstacles(topology, places, plan, links)
    if reasons:
        return {"arguments": None, "reasons": reasons}
    ports = max(map(len, places.ports.values()))
    windows = [_power_of_two(_slots(topology.job, tree)) for tree in plan.trees]
    members = _power_of_two(max(len(places.rank), 2))
    arguments = [
        "--switches",
        str(len(places.number)),
        "--ports",
        str(ports),
        "--members",
        str(members),
        "--jobs",
        str(_power_of_two(max(len(plan.trees), 2))),
        "--window",
        str(max(*windows, 2)),
        "--elements",
        str(topology.job.payload_bytes // 4),
    ]
    for link in links:
        one, other = (f"{switch}:{port}" for switch, port in link["places"])
        arguments += ["--link", f"{one}-{other},rate={link['bw_gbps'] * scale * 1e9:.0f}"]
    for job, tree in enumerate(plan.trees):
        for switch, parent in tree.parents.items():
            below = format_ranges(places.rank[worker] for worker in tree.workers_below(switch))
            arguments += [
                "--leaf",
                f"{places.number[switch]}-{places.number[parent]}:{below}{f':job={job}' if job else ''}",
            ]
    return {"arguments": arguments, "reasons": []}


def _obstacles(topology: Topology, places: _Places, plan: Plan, links: list[dict[str, Any]]) -> list[str]:
    """Return why the emulated fabric cannot run the plan.

    There a switch is the root, members are neighbours of the switch that sums them, and the cables form no loop.
    """
    found = []
    for tree in plan.trees:
        if tree.root not in places.number:
            found.append(f"sums end at the host {tree.root}, not at a switch")
        found += [
            f"{child} is not a neighbour of {path[-1]}, which sums it"
            f"{' (see --adjacent)' if path[-1] in places.number else ''}"
            for child, path in tree.up.items()
            if len(path) != 2
        ]
    used = nx.Graph(link["ends"] for link in links)
    if used and not nx.is_forest(used):
        found.append("cables between switches form a loop")
    if (ports := max(map(len, places.ports.values()))) > PORTS_MAX:
        found.append(f"a switch has {ports} cables, but an iswitch at most {PORTS_MAX} ports")
    if len(places.rank) > MEMBERS_MAX:
        found.append(f"there are {len(places.rank)} workers, but a job of iswitches has at most {MEMBERS_MAX}")
    if len(plan.trees) > JOBS_MAX:
        found.append(f"there are {len(plan.trees)} trees, but iswitches have at most {JOBS_MAX} jobs")
    if topology.job.unicast:
        found.append("results have paths of their own, but an iswitch sends them back along the tree")
    return list(dict.fromkeys(found))


def _flatten(value: Any, at: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by their keys, joined by dots."""
    if isinstance(value, Mapping) and value:
        return {
            name: leaf
            for key, each in value.items()
            for name, leaf in _flatten(each, f"{at}.{key}" if at else str(key)).items()
        }
    return {at: value}


def list_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what differs at switches and workers between two configurations, a line for each difference."""
    before, after = (_flatten({name: config[name] for name in ("switches", "workers")}) for config in (old, new))
    lines = []
    for name in sorted(before.keys() | after.keys(), key=natural_key):
        if before.get(name) != after.get(name):
            values = [
                " ".join(str(_shorten(side[name])).split()) if name in side else "nothing" for side in (before, after)
            ]
            lines.append(f"{name}: {values[0]} -> {values[1]}")
    return lines


def _shorten(value: Any) -> Any:
    """Return ranks as ranges, members as a list of names with ports, and a path with dashes."""
    if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        return format_ranges(value)
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return ", ".join(f"{each.get('worker') or each.get('switch')} at port {each['port']}" for each in value)
    return "-".join(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


def with_next_epoch(old: Mapping[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the new configuration with its epoch, and the differences from the old one.

    The epoch is that of the old configuration, plus 1 if anything differs.
    """
    lines = list_changes(old, new)
    return new | {"epoch": int(old["epoch"]) + bool(lines)}, lines

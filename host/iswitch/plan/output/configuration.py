"""The configuration that a plan gives to each switch and worker, and to the emulated fabric."""

import hashlib
import ipaddress
from itertools import pairwise
from typing import Any

from iswitch.plan.output.emulator import describe_emulator
from iswitch.plan.output.places import Places, power_of_two
from iswitch.plan.output.stripes import round_to_stripes
from iswitch.plan.solver.tree import Plan, Tree
from iswitch.plan.topology.graph_file import to_json
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["make_configuration"]

FIRST_MAC, FIRST_IP = 0x02_00_00_00_00_00, ipaddress.IPv4Address("10.0.0.1")


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
    places = Places(wired or topology, first_mac, first_ip)
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
                "path": list(path),
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
        "emulator": describe_emulator(topology, places, plan, links, scale),
    }


def _role(topology: Topology, places: Places, tree: Tree, switch: str) -> dict[str, Any]:
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
        parent = places.address(tree.parents[switch]) | {"port": ports[path[1]], "path": list(path)}
    slots = job.slots_in_flight(tree.rate_gbps)
    return {
        "role": "leaf" if parent else "root",
        "parent": parent,
        "ranks": sorted(places.rank[worker] for worker in tree.workers_below(switch)),
        "members": members,
        "slots": slots,
        "window": power_of_two(slots),
    }


def _links(topology: Topology, places: Places, plan: Plan) -> list[dict[str, Any]]:
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
            "bw_gbps": topology.free_gbps(b, a),
        }
        | ({"sender": a, "sender_gbps": topology.free_gbps(a, b)} if topology.is_unlike(a, b) else {})
        for a, b in ends
    ]

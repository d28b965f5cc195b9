"""The arguments of the emulator that build the fabric of a plan."""

from itertools import pairwise
from typing import Any

import networkx as nx

from iswitch.config import JOBS_MAX, MEMBERS_MAX, PORTS_MAX
from iswitch.plan.output.places import Places, format_ranges, power_of_two
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology

__all__ = ["describe_emulator"]


def describe_emulator(
    topology: Topology, places: Places, plan: Plan, links: list[dict[str, Any]], scale: float
) -> dict[str, Any]:
    """Return the emulator's arguments, and the `reasons` why no emulated fabric can run the plan.

    `with_hosts` has the reasons why a fabric of emulated switches cannot have hosts that send ordinary frames, as those
    of `python -m sim.emulator` do. There are no arguments if either list has a reason.
    """
    reasons, with_hosts = _obstacles(topology, places, plan, links), []
    used = nx.Graph(link["ends"] for link in links)
    if used and not nx.is_forest(used):
        with_hosts.append("cables between switches contain a cycle, and flooded frames would go around it")
    found = {"arguments": None, "reasons": reasons, "with_hosts": with_hosts}
    if reasons or with_hosts:
        return found
    ports = places.number_of_ports()
    windows = [power_of_two(topology.job.slots_in_flight(tree.rate_gbps)) for tree in plan.trees]
    members = power_of_two(max(len(places.rank), 2))
    arguments = [
        "--switches",
        str(len(places.number)),
        "--ports",
        str(ports),
        "--members",
        str(members),
        "--jobs",
        str(power_of_two(max(len(plan.trees), 2))),
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
    return found | {"arguments": arguments}


def _obstacles(topology: Topology, places: Places, plan: Plan, links: list[dict[str, Any]]) -> list[str]:
    """Return why the emulated fabric cannot run the plan.

    There a switch is the root, and members are neighbours of the switch that sums them.
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
    paths = [path for tree in plan.trees for path in (*tree.up.values(), *tree.down.values())]
    hops = {tuple(sorted(hop)) for path in paths for hop in pairwise(path)}
    found += [
        f"{topology.cable_label(*hop)} has unlike rates in its two directions, but an emulated cable has one rate"
        for hop in sorted(hops)
        if topology.is_unlike(*hop)
    ]
    if (cables := max(map(len, places.ports.values()))) > PORTS_MAX:
        found.append(f"a switch has {cables} cables, but an iswitch at most {PORTS_MAX} ports")
    elif (ports := places.number_of_ports()) > PORTS_MAX:
        found.append(f"a switch has a port {ports - 1}, but an iswitch at most ports 0 to {PORTS_MAX - 1}")
    if len(places.rank) > MEMBERS_MAX:
        found.append(f"there are {len(places.rank)} workers, but a job of iswitches has at most {MEMBERS_MAX}")
    if len(plan.trees) > JOBS_MAX:
        found.append(f"there are {len(plan.trees)} trees, but iswitches have at most {JOBS_MAX} jobs (see --max-trees)")
    if topology.job.unicast:
        found.append("results have paths of their own, but an iswitch sends them back along the tree")
    return list(dict.fromkeys(found))

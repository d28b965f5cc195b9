"""Random fabrics for tests: small, connected, with every feature of a topology."""

import random

import networkx as nx

from iswitch.plan.topology.shared_fabric import FabricJob, SharedFabric
from iswitch.plan.topology.topology import Job, Topology

__all__ = ["random_shared_fabric", "random_topology"]


def random_topology(
    seed: int | random.Random, *, switches: int = 4, workers: int = 8, least: bool = False, unlike: bool = False
) -> Topology:
    """Return a random topology.

    With `least`: one cable a worker, without slots, members and reservations. With `unlike`: most cables have a rate of
    their own in one direction.
    """
    chance = seed if isinstance(seed, random.Random) else random.Random(seed)
    graph = nx.Graph()
    count = chance.randint(2, switches)
    names = [f"s{number}" for number in range(count)]
    for number, name in enumerate(names):
        graph.add_node(name, kind="switch")
        if chance.random() < 0.75:
            graph.nodes[name].update(aggregates=True, capacity_gbps=float(chance.choice([3, 6, 9, 20])))
            if not least and chance.random() < 0.3:
                graph.nodes[name]["slots"] = chance.choice([8, 16, 64])
            if not least and chance.random() < 0.2:
                graph.nodes[name]["members"] = chance.randint(2, 5)
        if number:
            graph.add_edge(name, chance.choice(names[:number]), bw_gbps=float(chance.choice([2.5, 4, 10])))
    for _ in range(chance.randint(0, count)):
        a, b = chance.sample(names, 2)
        if not graph.has_edge(a, b):
            graph.add_edge(a, b, bw_gbps=float(chance.choice([2.5, 4, 10])))
    for number in range(chance.randint(2, workers)):
        graph.add_node(f"w{number}", kind="host")
        for switch in chance.sample(names, 2 if not least and chance.random() < 0.1 else 1):
            graph.add_edge(f"w{number}", switch, bw_gbps=float(chance.choice([2.5, 2.5, 10])))
    aggregates = [name for name in names if graph.nodes[name].get("aggregates")]
    if chance.random() < 0.7 or not aggregates:
        graph.add_node("ps", kind="host", role="ps")
        graph.add_edge("ps", chance.choice(names), bw_gbps=float(chance.choice([5, 10, 25])))
        if chance.random() < 0.3:
            graph.nodes["ps"]["ingress_gbps"] = 8.0
    for a, b in graph.edges:
        cable = graph.edges[a, b]
        if unlike and chance.random() < 0.7:
            cable.update(sender=chance.choice([a, b]), sender_gbps=float(chance.choice([2.5, 4, 10])))
        if not least and chance.random() < 0.1:
            cable["reserved_gbps"] = min(cable["bw_gbps"], cable.get("sender_gbps", cable["bw_gbps"])) / 4
    job = Job(
        return_path=chance.choice(["multicast", "unicast", "none"]),
        uplink_bytes_per_element=chance.choice([4, 8]),
        overhead_bytes=chance.choice([0, 88]),
    )
    return Topology(graph, job)


def random_shared_fabric(seed: int, *, jobs: int = 2, switches: int = 3, workers: int = 4) -> SharedFabric:
    """Return a random fabric with so many jobs, each of which has at least one worker. Some switches have slots; jobs
    have different weights and settings, and some end at the ps."""
    chance = random.Random(seed)
    while True:
        whole = random_topology(chance, switches=switches, workers=workers, least=True)
        if len(whole.workers) >= jobs:
            break
    for switch in whole.switches:
        if chance.random() < 0.3:
            whole.graph.nodes[switch]["slots"] = chance.choice([8, 16, 64])
    owner = {worker: number for number, worker in enumerate(chance.sample(whole.workers, jobs))}
    owner |= {worker: chance.randrange(jobs) for worker in whole.workers if worker not in owner}
    found = []
    for number in range(jobs):
        graph = whole.graph.copy()
        with_ps = bool(whole.ps) and (chance.random() < 0.7 or not whole.aggregators)
        for host in [node for node, kind in graph.nodes(data="kind") if kind == "host"]:
            role = "ps" if host == whole.ps and with_ps else "worker" if owner.get(host) == number else "other"
            graph.nodes[host]["role"] = role
        settings = {"return_path": chance.choice(["multicast", "unicast", "none"])}
        settings["uplink_bytes_per_element"] = chance.choice([4, 8])
        settings["round_trip_us"] = chance.choice([20.0, 50.0])
        if chance.random() < 0.2:
            settings["max_slots"] = chance.choice([4, 32])
        graph.graph.clear()
        found.append(FabricJob(f"job{number}", float(chance.choice([1, 1, 2, 3])), Topology(graph, Job(**settings))))
    return SharedFabric(found)

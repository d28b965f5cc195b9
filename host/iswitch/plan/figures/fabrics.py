"""The fabrics of the paper: its testbed, its fat tree and its leaf-spine network.

Of the simulated ones the paper states switches, servers, 100 Gb/s for all cables and for the ps, and capacities that
are drawn between 100 Gb/s and 3.2 Tb/s. It does not state where workers and ps are. Here the workers fill one rack
after another, with as many in each as the paper's bars of SwitchML need, and the ps is in the last rack.
"""

import random
from dataclasses import dataclass

import networkx as nx

from iswitch.plan.topology.generators import fat_tree, leaf_spine
from iswitch.plan.topology.topology import Job, Topology, natural_key

__all__ = ["CAPACITY_GBPS", "FABRICS", "LINK_GBPS", "SMALL_FABRICS", "Fabric", "make_testbed", "make_topology"]

JOB = {"return_path": "none", "uplink_bytes_per_element": 4, "overhead_bytes": 0}
"""As in the paper, headers have no size, a partial sum is as large as a gradient, and results are not planned."""
LINK_GBPS = 100.0
CAPACITY_GBPS = (100.0, 3200.0)
CHOSEN_PART = 0.2
"""The part of the switches that aggregates in scenario (b)."""
TESTBED_SWITCHES = {"S1": (1, 2), "S2": (3, 4, 7), "S3": (5, 6, 8)}
"""Workers at each switch; the ps is at S1."""


@dataclass(frozen=True)
class Fabric:
    """A network of the simulations.

    Parameters
    ----------
    kind : {"fat-tree", "leaf-spine"}
        The kind of network.
    size : int
        Ports of a switch of the fat tree, or spines of the leaf-spine network, which has as many leaves.
    servers : int
        Servers of a rack.
    workers : int
        Workers of a rack. The bars of SwitchML in figure 11 are 100 Gb/s divided by the racks, if a rack of the fat
        tree has 4 workers and one of the leaf-spine network 10.
    """

    kind: str
    size: int
    servers: int
    workers: int

    def graph(self) -> nx.Graph:
        """Return the network with all its servers."""
        if self.kind == "fat-tree":
            return fat_tree(self.size, hosts=self.servers, bw_gbps=LINK_GBPS)
        return leaf_spine(self.size, self.size, self.servers, nic_gbps=LINK_GBPS, uplink_gbps=LINK_GBPS)


FABRICS = (Fabric("fat-tree", 8, 6, 4), Fabric("leaf-spine", 30, 17, 10))
"""80 switches with 192 servers, and 60 switches with 500 servers or a few more."""
SMALL_FABRICS = (Fabric("fat-tree", 4, 3, 2), Fabric("leaf-spine", 5, 4, 3))


def make_topology(
    fabric: Fabric,
    workers: int,
    *,
    chosen: bool,
    seed: int,
    capacity_gbps: tuple[float, float] = CAPACITY_GBPS,
    server_gbps: float = LINK_GBPS,
) -> Topology:
    """Return a network with its workers, its ps and its aggregating switches. Other servers are left out.

    Parameters
    ----------
    fabric : Fabric
        The network.
    workers : int
        Number of workers.
    chosen : bool
        Let a random fifth of all switches aggregate, scenario (b), instead of the switches of the racks, (a).
    seed : int
        Seed of the capacities and of the switches that are chosen.
    capacity_gbps : tuple of float
        Bounds of a switch's capacity, in Gb/s.
    server_gbps : float
        Gb/s that the ps takes.

    Raises
    ------
    ValueError
        If the network has too few servers for so many workers.
    """
    graph, rng = fabric.graph(), random.Random(seed)
    racks: dict[str, list[str]] = {}
    for host in sorted((node for node, kind in graph.nodes(data="kind") if kind == "host"), key=natural_key):
        racks.setdefault(next(iter(graph[host])), []).append(host)
    *others, (*_, server) = racks.values()
    placed = [host for rack in others for host in rack[: fabric.workers]][:workers]
    if len(placed) < workers:
        raise ValueError(f"workers must be at most {len(placed)} on this {fabric.kind}, not {workers}")
    kept = {*placed, server}
    graph.remove_nodes_from([host for rack in racks.values() for host in rack if host not in kept])
    switches = sorted((node for node, kind in graph.nodes(data="kind") if kind == "switch"), key=natural_key)
    aggregating = rng.sample(switches, round(CHOSEN_PART * len(switches))) if chosen else list(racks)
    graph.edges[server, next(iter(graph[server]))]["bw_gbps"] = float(server_gbps)
    aggregates = {switch: rng.uniform(*capacity_gbps) for switch in aggregating}
    return Topology.of(graph, ps=server, aggregates=aggregates, job=Job(**JOB))


def make_testbed(workers: int, *, nic_gbps: float, server_gbps: float) -> Topology:
    """Return the testbed: three switches in a triangle, all cables with 100 Gb/s.

    Parameters
    ----------
    workers : int
        Number of workers, which are added in the order of their names, 2 to 8. A switch is there if its workers are.
    nic_gbps : float
        Gb/s that a worker sends at most.
    server_gbps : float
        Gb/s that the ps takes at most.
    """
    graph = nx.Graph()
    at = {number: switch for switch, numbers in TESTBED_SWITCHES.items() for number in numbers}
    for number in range(1, workers + 1):
        graph.add_node(at[number], kind="switch", aggregates=True, capacity_gbps=CAPACITY_GBPS[1])
        graph.add_node(f"W{number}", kind="host")
        graph.add_edge(f"W{number}", at[number], bw_gbps=float(nic_gbps))
    switches = sorted(set(at[number] for number in range(1, workers + 1)))
    graph.add_edges_from(((a, b) for a in switches for b in switches if a < b), bw_gbps=LINK_GBPS)
    graph.add_node("PS", kind="host", role="ps")
    graph.add_edge("PS", "S1", bw_gbps=float(server_gbps))
    return Topology(graph, Job(**JOB))

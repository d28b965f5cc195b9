"""Generated topologies: leaf-spine, fat-tree, and the example of eight workers and three switches."""

from typing import Any

import networkx as nx

from iswitch.plan.topology.topology import Job, Topology

__all__ = ["fat_tree", "leaf_spine", "seed_example"]


def _require_positive(**counts: float) -> None:
    for name, value in counts.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value!r}")


def leaf_spine(leaves: int, spines: int, hosts: int, *, nic_gbps: float = 10.0, uplink_gbps: float = 40.0) -> nx.Graph:
    """Return a leaf-spine network with nodes `leaf1`, `spine1`, `leaf1-h1` and so on.

    One cable joins every leaf with every spine. No switch aggregates, and no host is a ps.

    Parameters
    ----------
    leaves, spines : int
        Numbers of switches.
    hosts : int
        Hosts at each leaf.
    nic_gbps : float
        Gb/s of a host's cable.
    uplink_gbps : float
        Gb/s of a cable between leaf and spine.
    """
    _require_positive(leaves=leaves, spines=spines, hosts=hosts, nic_gbps=nic_gbps, uplink_gbps=uplink_gbps)
    graph = nx.Graph()
    for leaf in range(1, leaves + 1):
        graph.add_node(f"leaf{leaf}", kind="switch")
        for spine in range(1, spines + 1):
            graph.add_node(f"spine{spine}", kind="switch")
            graph.add_edge(f"leaf{leaf}", f"spine{spine}", bw_gbps=float(uplink_gbps))
        for host in range(1, hosts + 1):
            graph.add_node(f"leaf{leaf}-h{host}", kind="host")
            graph.add_edge(f"leaf{leaf}-h{host}", f"leaf{leaf}", bw_gbps=float(nic_gbps))
    return graph


def fat_tree(k: int, *, bw_gbps: float = 10.0, hosts: int | None = None) -> nx.Graph:
    """Return the fat-tree of k-port switches (Al-Fares, Loukissas, Vahdat: SIGCOMM 2008).

    It has k pods with k/2 edge and k/2 aggregation switches each, (k/2)^2 core switches, and k/2 hosts at each edge
    switch, or `hosts`. All cables have `bw_gbps`.
    """
    if k < 2 or k % 2:
        raise ValueError(f"k must be even and at least 2, not {k!r}")
    hosts = k // 2 if hosts is None else hosts
    _require_positive(bw_gbps=bw_gbps, hosts=hosts)
    graph, half = nx.Graph(), k // 2
    for core in range(half * half):
        graph.add_node(f"core{core + 1}", kind="switch")
    for pod in range(1, k + 1):
        for one in range(1, half + 1):
            graph.add_node(f"edge{pod}-{one}", kind="switch")
            graph.add_node(f"agg{pod}-{one}", kind="switch")
        for one in range(1, half + 1):
            for other in range(1, half + 1):
                graph.add_edge(f"edge{pod}-{one}", f"agg{pod}-{other}", bw_gbps=float(bw_gbps))
                graph.add_edge(f"agg{pod}-{one}", f"core{(one - 1) * half + other}", bw_gbps=float(bw_gbps))
            for other in range(1, hosts + 1):
                graph.add_node(f"h{pod}-{one}-{other}", kind="host")
                graph.add_edge(f"h{pod}-{one}-{other}", f"edge{pod}-{one}", bw_gbps=float(bw_gbps))
    return graph


def seed_example(*, capacity_gbps: float = 9.0, without: str | None = None, **settings: Any) -> Topology:
    """Return the example of GRID (Fang and others, figure 1).

    Eight workers are at three switches, which form a triangle with the cables L1 to L3. The ps is at the third switch.
    As in the paper, headers have no size, and a partial sum is as large as a gradient.

    Parameters
    ----------
    capacity_gbps : float
        Gb/s that each switch can sum.
    without : str, optional
        A cable to leave out: L1, L2 or L3.
    **settings
        Settings of the job.
    """
    graph = nx.Graph()
    for switch, workers in (("S1", (1, 2, 3, 4)), ("S2", (5, 6)), ("S3", (7, 8))):
        graph.add_node(switch, kind="switch", aggregates=True, capacity_gbps=float(capacity_gbps))
        for worker in workers:
            graph.add_node(f"W{worker}", kind="host", role="worker")
            graph.add_edge(f"W{worker}", switch, bw_gbps=3.0)
    graph.add_node("PS", kind="host", role="ps")
    graph.add_edge("PS", "S3", bw_gbps=9.0)
    for name, a, b in (("L1", "S1", "S3"), ("L2", "S1", "S2"), ("L3", "S2", "S3")):
        if name != without:
            graph.add_edge(a, b, bw_gbps=3.0, name=name)
    return Topology(graph, Job(**{"uplink_bytes_per_element": 4, "overhead_bytes": 0} | settings))

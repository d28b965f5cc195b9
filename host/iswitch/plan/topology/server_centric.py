"""Topologies whose servers have several ports, or whose switches are wired at random: BCube, DCell, Jellyfish.

Each is an undirected `networkx.Graph`. Nodes have `kind`, "host" or "switch", and edges have `bw_gbps`. Hosts come
first: h0, h1, ... in the order of their addresses.
"""

import random
from itertools import pairwise

import networkx as nx

__all__ = ["bcube", "dcell", "jellyfish"]

ATTEMPTS = 1000


def bcube(n: int, k: int, *, bw_gbps: float = 10.0) -> nx.Graph:
    """Return BCube(n, k): n^(k+1) hosts with k+1 ports each.

    Addresses have k+1 digits. Port l of a host leads to the switch of all hosts whose addresses differ in digit l only.
    """
    if n < 2 or k < 0:
        raise ValueError(f"BCube needs n >= 2 and k >= 0, not n={n!r}, k={k!r}")
    count = n ** (k + 1)
    graph = _hosts(count)
    for level in range(k + 1):
        stride = n**level
        for host in range(count):
            rest = host // (stride * n) * stride + host % stride  # the address without digit `level`
            switch = f"s{level}.{rest}"
            graph.add_node(switch, kind="switch")
            graph.add_edge(f"h{host}", switch, bw_gbps=bw_gbps)
    return graph


def dcell(n: int, k: int, *, bw_gbps: float = 10.0) -> nx.Graph:
    """Return DCell(n, k).

    A cell of level 0 is n hosts at a switch. A cell of level l consists of cells of level l-1, one more than each has
    hosts, and of one cable between any two of them.
    """
    if n < 2 or k < 0:
        raise ValueError(f"DCell needs n >= 2 and k >= 0, not n={n!r}, k={k!r}")
    sizes = [n]
    for _ in range(k):
        sizes.append(sizes[-1] * (sizes[-1] + 1))
    graph = _hosts(sizes[-1])
    for host in range(sizes[-1]):
        graph.add_node(f"s{host // n}", kind="switch")
        graph.add_edge(f"h{host}", f"s{host // n}", bw_gbps=bw_gbps)
    for inner, outer in pairwise(sizes):
        for first in range(0, sizes[-1], outer):
            for i in range(inner + 1):
                for j in range(i + 1, inner + 1):  # host j-1 of cell i to host i of cell j
                    graph.add_edge(f"h{first + i * inner + j - 1}", f"h{first + j * inner + i}", bw_gbps=bw_gbps)
    return graph


def jellyfish(switches: int, degree: int, seed: int, hosts_per_switch: int = 1, *, bw_gbps: float = 10.0) -> nx.Graph:
    """Return a Jellyfish: switches whose cables to other switches are random, the same for the same seed.

    Parameters
    ----------
    switches : int
        Number of switches.
    degree : int
        Cables of each switch to other switches.
    seed : int
        Seed of the random numbers.
    hosts_per_switch : int
        Hosts at each switch.
    bw_gbps : float
        Gb/s of every cable.
    """
    if not 2 <= degree < switches or switches * degree % 2:
        raise ValueError(
            "Jellyfish needs 2 <= degree < switches and an even switches * degree, "
            f"not switches={switches!r}, degree={degree!r}"
        )
    if hosts_per_switch < 1:
        raise ValueError(f"Jellyfish hosts_per_switch must be at least 1, not {hosts_per_switch!r}")
    rng = random.Random(seed)
    for _ in range(ATTEMPTS):
        wiring = _regular(switches, degree, rng)
        if wiring is not None and nx.is_connected(wiring):
            break
    else:
        raise ValueError(
            f"Jellyfish of {switches} switches and degree {degree}: no connected graph in {ATTEMPTS} attempts"
        )
    graph = _hosts(switches * hosts_per_switch)
    graph.add_nodes_from((f"s{switch}" for switch in range(switches)), kind="switch")
    for host in range(switches * hosts_per_switch):
        graph.add_edge(f"h{host}", f"s{host // hosts_per_switch}", bw_gbps=bw_gbps)
    graph.add_edges_from(((f"s{a}", f"s{b}") for a, b in sorted(wiring.edges)), bw_gbps=bw_gbps)
    return graph


def _hosts(count: int) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from((f"h{host}" for host in range(count)), kind="host")
    return graph


def _regular(nodes: int, degree: int, rng: random.Random) -> nx.Graph | None:
    """Return a random graph whose nodes all have `degree` edges, or None if this attempt failed.

    Edges are added between random free ports. If two free ports of a node can have no new edge, a random edge is cut,
    and its ends are joined with that node.
    """
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    while free := [node for node in graph if graph.degree(node) < degree]:
        pairs = [(a, b) for a in free for b in free if a < b and not graph.has_edge(a, b)]
        if pairs:
            graph.add_edge(*rng.choice(pairs))
            continue
        node = free[0]
        cuts = [
            (a, b)
            for a, b in graph.edges
            if node not in (a, b) and not graph.has_edge(node, a) and not graph.has_edge(node, b)
        ]
        if degree - graph.degree(node) < 2 or not cuts:
            return None
        a, b = rng.choice(cuts)
        graph.remove_edge(a, b)
        graph.add_edges_from([(node, a), (node, b)])
    return graph

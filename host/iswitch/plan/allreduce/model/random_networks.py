"""Random networks of eight families, on which no policy was trained, to compare schedulers on.

A family and a seed give the same network everywhere. No network has a name in the table of docs/allreduce.md.
"""

import random
from collections.abc import Callable
from itertools import combinations

import networkx as nx

from iswitch.plan.topology.server_centric import bcube, dcell, jellyfish

__all__ = ["RANDOM_FAMILIES", "build_random_network"]

BW_GBPS = 10.0


def _servers(graph: nx.Graph) -> nx.Graph:
    """Return a graph whose nodes are all servers, which forward."""
    found = nx.relabel_nodes(graph, {node: f"h{at}" for at, node in enumerate(sorted(graph))})
    nx.set_node_attributes(found, "host", "kind")
    nx.set_edge_attributes(found, BW_GBPS, "bw_gbps")
    return found


def _without_cables(graph: nx.Graph, rng: random.Random, count: int) -> nx.Graph:
    """Return a graph without some random cables; it stays connected."""
    found = graph.copy()
    for a, b in rng.sample(sorted(graph.edges), len(graph.edges)):
        if count and not nx.has_path(nx.restricted_view(found, (), [(a, b)]), a, b):
            continue
        if not count:
            break
        found.remove_edge(a, b)
        count -= 1
    return found


def _jellyfish(rng: random.Random) -> nx.Graph:
    switches = rng.choice((6, 8, 10, 12))
    return jellyfish(switches, rng.choice((3, 4)), rng.randrange(100, 10**6), 2 if switches <= 8 else 1)


def _server_tree(rng: random.Random) -> nx.Graph:
    return _servers(nx.random_labeled_tree(rng.randint(6, 14), seed=rng.randrange(10**6)))


def _regular(rng: random.Random) -> nx.Graph:
    size = 2 * rng.randint(4, 8)
    while not nx.is_connected(graph := nx.random_regular_graph(3, size, seed=rng.randrange(10**6))):
        pass
    return _servers(graph)


def _sparse(rng: random.Random) -> nx.Graph:
    """Return a random tree of servers with a few more cables: ports differ."""
    size = rng.randint(7, 14)
    graph = nx.random_labeled_tree(size, seed=rng.randrange(10**6))
    absent = sorted(pair for pair in combinations(range(size), 2) if not graph.has_edge(*pair))
    graph.add_edges_from(rng.sample(absent, size // 2))
    return _servers(graph)


def _torus(rng: random.Random) -> nx.Graph:
    graph = nx.grid_2d_graph(3, rng.randint(3, 5), periodic=True)
    return _servers(_without_cables(graph, rng, rng.randint(1, 3)))


def _broken_bcube(rng: random.Random) -> nx.Graph:
    return _without_cables(bcube(*rng.choice(((3, 1), (4, 1), (2, 2)))), rng, rng.randint(1, 4))


def _broken_dcell(rng: random.Random) -> nx.Graph:
    return _without_cables(dcell(rng.choice((3, 4)), 1), rng, rng.randint(1, 4))


def _unequal(rng: random.Random) -> nx.Graph:
    """Return switches at random with servers of one to three cables, to switches and sometimes to each other."""
    hosts, switches = [f"h{at}" for at in range(rng.randint(5, 12))], [f"s{at}" for at in range(rng.randint(3, 6))]
    graph = nx.Graph()
    graph.add_nodes_from(hosts, kind="host")
    graph.add_nodes_from(switches, kind="switch")
    graph.add_edges_from((switch, rng.choice(switches[:at])) for at, switch in enumerate(switches) if at)
    graph.add_edge(*rng.sample(switches, 2))
    for host in hosts:
        graph.add_edges_from((host, other) for other in rng.sample(switches, rng.randint(1, 2)))
        if rng.random() < 0.3:
            graph.add_edge(host, rng.choice([other for other in hosts if other != host]))
    nx.set_edge_attributes(graph, BW_GBPS, "bw_gbps")
    return graph


RANDOM_FAMILIES: dict[str, Callable[[random.Random], nx.Graph]] = {
    "Jellyfish": _jellyfish,
    "trees of servers": _server_tree,
    "regular graphs of servers": _regular,
    "sparse graphs of servers": _sparse,
    "tori without some cables": _torus,
    "BCube without some cables": _broken_bcube,
    "DCell without some cables": _broken_dcell,
    "servers with unequal ports": _unequal,
}
"""By name, the function that makes a network of the family."""


def build_random_network(family: str, seed: int) -> nx.Graph:
    """Return a network of a family.

    Parameters
    ----------
    family : str
        A name of `RANDOM_FAMILIES`.
    seed : int
        Seed of all choices.

    Raises
    ------
    ValueError
        If the family is unknown.
    """
    if family not in RANDOM_FAMILIES:
        raise ValueError(f"family must be one of {', '.join(RANDOM_FAMILIES)}, not {family!r}")
    return RANDOM_FAMILIES[family](random.Random(f"{family} {seed}"))

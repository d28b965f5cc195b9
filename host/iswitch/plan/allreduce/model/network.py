"""A network as schedulers see it: servers, directed links, and the hops from server to server through switches only."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

__all__ = ["PATHS_MAX", "Network"]

PATHS_MAX = 4
"""How many shortest paths between two servers are hops."""


@dataclass(frozen=True, eq=False)
class Network:
    """The servers, directed links and hops of a graph, numbered.

    Parameters
    ----------
    graph : networkx.Graph
        Undirected; nodes have `kind`, ``"host"`` or ``"switch"``.

    Attributes
    ----------
    servers : list
        The hosts, in the order of the graph.
    links : list of (from, to)
        Both directions of every edge.
    hops : list of tuple
        Shortest paths between two servers with only switches between them, as nodes. Arrays over hops follow this
        order.

    Raises
    ------
    ValueError
        If a node has another kind, if there are fewer than two hosts, or if a host cannot reach another.
    """

    graph: nx.Graph
    servers: list[Hashable] = field(init=False, repr=False)
    links: list[tuple[Hashable, Hashable]] = field(init=False, repr=False)
    hops: list[tuple[Hashable, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for node, kind in self.graph.nodes(data="kind"):
            if kind not in ("host", "switch"):
                raise ValueError(f"kind of node {node!r} must be 'host' or 'switch', not {kind!r}")
        servers = [node for node, kind in self.graph.nodes(data="kind") if kind == "host"]
        if len(servers) < 2:
            raise ValueError(f"AllReduce needs at least 2 hosts, not {len(servers)}")
        reached = nx.node_connected_component(self.graph, servers[0])
        if apart := [server for server in servers if server not in reached]:
            raise ValueError(f"every host must reach every other, but {apart[0]} has no path to {servers[0]}")
        object.__setattr__(self, "servers", servers)
        object.__setattr__(self, "links", [link for a, b in self.graph.edges for link in ((a, b), (b, a))])
        object.__setattr__(self, "hops", [path for server in servers for path in self._hops_from(server)])

    def _hops_from(self, server: Hashable) -> Iterator[tuple[Hashable, ...]]:
        """Yield the hops from a server, breadth first, at most `PATHS_MAX` to each other server."""
        layer: dict[Hashable, list[tuple[Hashable, ...]]] = {server: [(server,)]}
        seen = {server}
        while layer:
            following: dict[Hashable, list[tuple[Hashable, ...]]] = {}
            for node, paths in layer.items():
                for neighbour in self.graph[node]:
                    if neighbour not in seen:
                        following.setdefault(neighbour, []).extend((*path, neighbour) for path in paths)
            seen.update(following)
            layer = {}
            for node, paths in following.items():
                if self.graph.nodes[node]["kind"] == "host":
                    yield from paths[:PATHS_MAX]
                else:
                    layer[node] = paths[:PATHS_MAX]

    @property
    def size(self) -> int:
        """Number of servers, and of chunks of the gradient."""
        return len(self.servers)

    @cached_property
    def server_index(self) -> dict[Hashable, int]:
        """Number of each server."""
        return {server: number for number, server in enumerate(self.servers)}

    @cached_property
    def link_index(self) -> dict[tuple[Hashable, Hashable], int]:
        """Number of each directed link."""
        return {link: number for number, link in enumerate(self.links)}

    @cached_property
    def hop_index(self) -> dict[tuple[Hashable, ...], int]:
        """Number of each hop."""
        return {path: number for number, path in enumerate(self.hops)}

    @cached_property
    def source(self) -> NDArray[np.int64]:
        """Server at which each hop starts."""
        return np.array([self.server_index[path[0]] for path in self.hops])

    @cached_property
    def target(self) -> NDArray[np.int64]:
        """Server at which each hop ends."""
        return np.array([self.server_index[path[-1]] for path in self.hops])

    @cached_property
    def hop_links(self) -> NDArray[np.int64]:
        """Links of each hop in the order of its path, -1 after the last; [hop, position]."""
        longest = max(len(path) for path in self.hops) - 1
        table = np.full((len(self.hops), longest), -1)
        for row, path in zip(table, self.hops):
            row[: len(path) - 1] = [self.link_index[link] for link in pairwise(path)]
        return table

    @cached_property
    def ports(self) -> NDArray[np.int64]:
        """Number of links into each server."""
        return np.array([self.graph.degree(server) for server in self.servers])

    @cached_property
    def hop_distance(self) -> NDArray[np.int64]:
        """Fewest hops from server to server; [from, to]."""
        hops = nx.DiGraph()
        hops.add_nodes_from(range(self.size))
        hops.add_edges_from(zip(self.source.tolist(), self.target.tolist()))
        lengths = dict(nx.all_pairs_shortest_path_length(hops))
        return np.array([[lengths[a][b] for b in range(self.size)] for a in range(self.size)])

    @cached_property
    def link_distance(self) -> NDArray[np.int64]:
        """Fewest links from server to server, through any nodes; [from, to]."""
        return np.array(
            [
                [lengths[b] for b in self.servers]
                for a in self.servers
                for lengths in (nx.single_source_shortest_path_length(self.graph, a),)
            ]
        )

    @cached_property
    def incoming_hops(self) -> list[list[int]]:
        """Numbers of the hops that end at each server."""
        return [np.flatnonzero(self.target == server).tolist() for server in range(self.size)]

"""What a scheduler sees of a topology: servers, directed links, and the hops from server to server over switches
alone."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

__all__ = ["Network"]

PATHS = 4
"""Most shortest paths that are kept of one server to another."""


@dataclass(frozen=True, eq=False)
class Network:
    """Servers and directed links of a graph, numbered; a hop is a shortest path between two servers with nothing but
    switches between them.

    `graph`: undirected, nodes with `kind` "host" or "switch". Server i is the i-th host in the graph's order. Arrays
    over hops: `source`, `target` (servers) and `hop_links` (links of the path in order, -1 after the last).
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
        if not all(nx.has_path(self.graph, servers[0], server) for server in servers[1:]):
            raise ValueError("every host must reach every other")
        object.__setattr__(self, "servers", servers)
        object.__setattr__(self, "links", [link for a, b in self.graph.edges for link in ((a, b), (b, a))])
        object.__setattr__(self, "hops", [path for server in servers for path in self._hops_from(server)])

    def _hops_from(self, server: Hashable) -> Iterator[tuple[Hashable, ...]]:
        """Breadth first, never through a host; at most PATHS shortest paths to each."""
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
                    yield from paths[:PATHS]
                else:
                    layer[node] = paths[:PATHS]

    @property
    def size(self) -> int:
        """Servers, and chunks of the gradient."""
        return len(self.servers)

    @cached_property
    def index(self) -> dict[Hashable, int]:
        """Number of each server."""
        return {server: number for number, server in enumerate(self.servers)}

    @cached_property
    def link_index(self) -> dict[tuple[Hashable, Hashable], int]:
        """Number of each directed link."""
        return {link: number for number, link in enumerate(self.links)}

    @cached_property
    def source(self) -> NDArray[np.int64]:
        return np.array([self.index[path[0]] for path in self.hops])

    @cached_property
    def target(self) -> NDArray[np.int64]:
        return np.array([self.index[path[-1]] for path in self.hops])

    @cached_property
    def hop_links(self) -> NDArray[np.int64]:
        longest = max(len(path) for path in self.hops) - 1
        table = np.full((len(self.hops), longest), -1)
        for row, path in zip(table, self.hops):
            row[: len(path) - 1] = [self.link_index[link] for link in pairwise(path)]
        return table

    @cached_property
    def ports(self) -> NDArray[np.int64]:
        """Links into each server."""
        return np.array([self.graph.degree(server) for server in self.servers])

    @cached_property
    def hop_of(self) -> dict[tuple[Hashable, ...], int]:
        return {path: number for number, path in enumerate(self.hops)}

    @cached_property
    def distance(self) -> NDArray[np.int64]:
        """Least hops from server to server."""
        near = nx.DiGraph()
        near.add_nodes_from(range(self.size))
        near.add_edges_from(zip(self.source.tolist(), self.target.tolist()))
        lengths = dict(nx.all_pairs_shortest_path_length(near))
        return np.array([[lengths[a][b] for b in range(self.size)] for a in range(self.size)])

    @cached_property
    def far(self) -> NDArray[np.int64]:
        """Least links from server to server, over whatever nodes."""
        return np.array(
            [
                [lengths[b] for b in self.servers]
                for a in self.servers
                for lengths in (nx.single_source_shortest_path_length(self.graph, a),)
            ]
        )

    @cached_property
    def arriving(self) -> list[list[int]]:
        """Hops into each server."""
        return [np.flatnonzero(self.target == server).tolist() for server in range(self.size)]

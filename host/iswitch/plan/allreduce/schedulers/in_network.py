"""AllReduce over one tree whose switches sum and copy: what an aggregating switch is for."""

import networkx as nx

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule

__all__ = ["closed_in_network", "in_network"]


def in_network(network: Network) -> tuple[Schedule, list[object]]:
    """Chunks go up one tree a round apart, summed at every node, and down again; with it the switches that must
    aggregate.

    The tree is breadth first from the node from which the farthest server is least far, a switch if there is one as
    good. N servers and depth D (links) make N + 2D - 1 rounds: both ways of a link are busy at once.
    """
    graph, root = network.graph, _root(network)
    tree = nx.bfs_tree(graph, root)
    needed = {node for server in network.servers for node in nx.shortest_path(tree, root, server)}
    depth = nx.single_source_shortest_path_length(tree, root)
    deepest = max(depth[server] for server in network.servers)
    rounds: list[list[Flow]] = [[] for _ in range(network.size + 2 * deepest - 1)]
    for parent, child in tree.edges:
        if child not in needed:
            continue
        for chunk in range(network.size):
            rounds[chunk + deepest - depth[child]].append(Flow(chunk, (child, parent), Op.MERGE, child))
            rounds[chunk + deepest + depth[child] - 1].append(Flow(chunk, (parent, child), Op.COPY, parent))
    switches = [node for node in graph if node in needed and graph.nodes[node]["kind"] == "switch"]
    return Schedule("in-network aggregation", network.size, rounds), switches


def _root(network: Network) -> object:
    graph = network.graph
    far = {
        node: max(lengths[server] for server in network.servers)
        for node, lengths in nx.all_pairs_shortest_path_length(graph)
    }
    return min(graph, key=lambda node: (far[node], graph.nodes[node]["kind"] != "switch"))


def closed_in_network(network: Network) -> int:
    """N + 2D - 1."""
    lengths = nx.single_source_shortest_path_length(network.graph, _root(network))
    return network.size + 2 * max(lengths[server] for server in network.servers) - 1

"""AllReduce over one tree whose switches sum and copy."""

import networkx as nx

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule

__all__ = ["in_network_rounds", "in_network"]


def in_network(network: Network) -> tuple[Schedule, list[object]]:
    """Return the schedule over one tree, and the switches that must aggregate.

    Chunks go up the tree, one round apart, are summed at every node, and come down again. The tree is breadth first
    from the most central node, a switch if possible. N servers and a depth of D links need N + 2D - 1 rounds, since
    both directions of a link are in use at once.
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
    """Return the node from which the remotest server is nearest."""
    graph = network.graph
    remotest = {
        node: max(lengths[server] for server in network.servers)
        for node, lengths in nx.all_pairs_shortest_path_length(graph)
    }
    return min(graph, key=lambda node: (remotest[node], graph.nodes[node]["kind"] != "switch"))


def in_network_rounds(network: Network) -> int:
    """Return the rounds of `in_network` by its closed form, N + 2D - 1."""
    lengths = nx.single_source_shortest_path_length(network.graph, _root(network))
    return network.size + 2 * max(lengths[server] for server in network.servers) - 1

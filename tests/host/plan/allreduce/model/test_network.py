"""The network of a scheduler: hops through switches only, links, distances, and lower bounds that hold."""

from itertools import pairwise

import networkx as nx
import pytest

from iswitch.plan.allreduce.model.bounds import find_bounds
from iswitch.plan.allreduce.model.network import PATHS_MAX, Network
from iswitch.plan.allreduce.model.topologies import TOPOLOGIES, build_topology
from iswitch.plan.allreduce.schedulers.exact import find_fewest_rounds
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases
from iswitch.plan.allreduce.schedulers.parameter_server import fixed_trees

PORT_BOUNDS = (3, 8, 15, 24, 5, 18, 8, 5, 11, 19, 29, 28, 14, 18, 30, 38, 30)
"""2(N-1)/d rounded up, from the published sizes."""


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_hops_are_shortest_and_pass_switches_only(name):
    network = Network(build_topology(name))
    without = {
        server: network.graph.subgraph(
            [node for node, kind in network.graph.nodes(data="kind") if kind == "switch"] + [server]
        )
        for server in network.servers
    }
    for path in network.hops:
        assert all(network.graph.nodes[node]["kind"] == "switch" for node in path[1:-1])
        if len(path) > 2:
            assert nx.shortest_path_length(without[path[0]], path[0], path[-2]) == len(path) - 2
    pairs = [(path[0], path[-1]) for path in network.hops]
    assert max(pairs.count(pair) for pair in set(pairs)) <= PATHS_MAX and len(set(network.hops)) == len(network.hops)


def test_links_of_a_hop_are_those_of_its_path():
    network = Network(build_topology("Jellyfish(8,3)"))
    for path, row in zip(network.hops, network.hop_links):
        assert [network.links[link] for link in row if link >= 0] == list(pairwise(path))


def test_ports_and_distances():
    network = Network(build_topology("BCube(2,2)"))
    assert set(network.ports) == {3}
    assert [[bin(a ^ b).count("1") for b in range(8)] for a in range(8)] == network.hop_distance.tolist()
    assert (network.link_distance == 2 * network.hop_distance).all()


@pytest.mark.parametrize("name, ports", list(zip(TOPOLOGIES, PORT_BOUNDS)))
def test_port_bound_is_that_of_the_formula(name, ports):
    assert find_bounds(Network(build_topology(name))).ports == ports


@pytest.mark.parametrize("name", ["BCube(2,1)", "BCube(3,1)", "DCell(3,1)", "Jellyfish(8,3)"])
def test_no_schedule_is_below_the_bounds(name):
    network = Network(build_topology(name))
    limits, schedule = find_bounds(network), fixed_trees(network)
    assert schedule.length >= limits.two_phases >= limits.best
    assert overlap_phases(schedule).length >= limits.best


def test_bounds_of_servers_with_different_ports():
    """A server with one port needs a round for every chunk, whatever ports the others have."""
    graph = nx.Graph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])
    nx.set_node_attributes(graph, "host", "kind")
    found = find_bounds(Network(graph))
    assert (found.ports, found.inlet, found.spread) == (3, 5, 1) and found.best == 5


@pytest.mark.parametrize("size", [2, 3, 5, 12])
def test_a_line_needs_the_hops_of_the_first_chunk_and_a_round_for_each_further_one(size):
    graph = nx.path_graph(size)
    nx.set_node_attributes(graph, "host", "kind")
    limits = find_bounds(Network(graph))
    assert limits.best == limits.inlet == 2 * size - 2
    assert limits.two_phases >= limits.best


@pytest.mark.parametrize("seed", range(30))
def test_no_bound_exceeds_the_fewest_rounds_of_a_random_network(seed):
    graph = nx.random_labeled_tree(4, seed=seed) if seed % 2 else nx.gnp_random_graph(4, 0.6, seed=seed)
    if not nx.is_connected(graph):
        graph = nx.compose(graph, nx.star_graph(3))
    nx.set_node_attributes(graph, "host", "kind")
    network = Network(graph)
    found, limits = find_fewest_rounds(network), find_bounds(network)
    assert found.schedule is not None and limits.best <= found.schedule.length
    assert limits.two_phases >= limits.best


@pytest.mark.parametrize(
    "edges, kinds, message",
    [
        ([("a", "b")], {"a": "host", "b": "router"}, "kind of node 'b'"),
        ([("a", "s")], {"a": "host", "s": "switch"}, "at least 2 hosts"),
        ([("a", "s"), ("b", "t")], {"a": "host", "b": "host", "s": "switch", "t": "switch"}, "every host must reach"),
    ],
)
def test_graph_wrong(edges, kinds, message):
    graph = nx.Graph(edges)
    nx.set_node_attributes(graph, kinds, "kind")
    with pytest.raises(ValueError, match=message):
        Network(graph)


@pytest.mark.parametrize("name", ["BCube", "Ring(3)", "BCube(2)", "DCell(2,1,1)", "Jellyfish(8,3,1,1,1)", "BCube(2;1)"])
def test_topology_name_wrong(name):
    with pytest.raises(ValueError):
        build_topology(name)


def test_names_take_seed_and_hosts():
    assert nx.utils.graphs_equal(build_topology("jellyfish(8, 3, 1)"), build_topology("Jellyfish(8,3)"))
    assert len(Network(build_topology("Jellyfish(8,3,1,2)")).servers) == 16

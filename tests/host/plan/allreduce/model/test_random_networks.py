"""Random networks of eight families: the same for the same seed, and networks that can be scheduled."""

import networkx as nx
import pytest

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.random_networks import RANDOM_FAMILIES, build_random_network
from iswitch.plan.allreduce.model.topologies import TRAINED_ON, build_topology


@pytest.mark.parametrize("family", RANDOM_FAMILIES)
def test_a_seed_gives_one_network_and_seeds_give_different_ones(family):
    made = [build_random_network(family, seed) for seed in (1, 1, 2, 3, 4)]
    edges = [sorted(map(sorted, graph.edges)) for graph in made]
    assert edges[0] == edges[1] and edges[0] not in edges[2:]
    assert all(nx.is_connected(graph) and 4 <= Network(graph).size <= 20 for graph in made)


@pytest.mark.parametrize("family", RANDOM_FAMILIES)
def test_no_network_is_one_of_the_training(family):
    trained = [build_topology(name) for name in TRAINED_ON]
    same_kind = nx.algorithms.isomorphism.categorical_node_match("kind", None)
    for seed in range(1, 13):
        graph = build_random_network(family, seed)
        assert not any(
            nx.faster_could_be_isomorphic(graph, each) and nx.is_isomorphic(graph, each, same_kind) for each in trained
        )


def test_servers_have_unequal_ports():
    ports = Network(build_random_network("servers with unequal ports", 1)).ports
    assert ports.min() < ports.max()


def test_unknown_family_wrong():
    with pytest.raises(ValueError, match=r"family must be one of Jellyfish, .*, not 'rings'"):
        build_random_network("rings", 1)

"""Networks from files are checked like topologies, and by the rules of rounds; every refusal names the file."""

import json

import networkx as nx
import pytest

from iswitch.plan.allreduce.files.network_file import read_network
from iswitch.plan.allreduce.model.topologies import build_topology
from iswitch.plan.topology.errors import TopologyError


def network(change=lambda graph: None):
    """Return a graph of two hosts at a switch after a change."""
    graph = nx.Graph()
    graph.add_node("s", kind="switch")
    for host in "ab":
        graph.add_node(host, kind="host")
        graph.add_edge(host, "s", bw_gbps=10.0)
    change(graph)
    return graph


@pytest.fixture
def written(tmp_path):
    """A function that writes a graph and returns the path."""

    def write(graph):
        path = tmp_path / "net.json"
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
        return path

    return write


def set_all_rates(value):
    return lambda graph: nx.set_edge_attributes(graph, value, "bw_gbps")


@pytest.mark.parametrize(
    "graph",
    [
        network(),
        network(lambda graph: [data.pop("bw_gbps") for *_, data in graph.edges(data=True)]),
        build_topology("DCell(3,1)"),
    ],
)
def test_a_network_is_read_as_it_was_written(written, graph):
    found = read_network(written(graph))
    assert dict(found.nodes(data=True)) == dict(graph.nodes(data=True)) and nx.utils.graphs_equal(found, graph)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_all_rates(1e9), "bw_gbps of .* must be at most"),
        (set_all_rates(1e-9), "bw_gbps of .* must be at least 0.001"),
        (set_all_rates(-1), "bw_gbps of .* must be at least 0.001"),
        (set_all_rates(float("nan")), "bw_gbps of .* must be a finite number"),
        (set_all_rates("10"), "bw_gbps of .* must be a number in Gb/s, not '10'"),
        (lambda graph: graph.edges["a", "s"].update(bw=10), "(a-s|s-a) has no setting 'bw'; is 'bw_gbps' meant"),
        (lambda graph: graph.nodes["a"].update(rank=1), "a has no setting 'rank'"),
        (lambda graph: graph.graph.update(overhead_bytes=1e30), "overhead_bytes of the job must be at most 65536"),
        (lambda graph: graph.add_edge(7, "s"), "the name of a node must be text, not 7"),
        (lambda graph: graph.add_edge("a", "a"), "a cable must join two nodes, not a with itself"),
        (lambda graph: graph.add_node("c", kind="host"), "every host must reach every other, but c has no path to a"),
        (lambda graph: graph.remove_node("b"), "AllReduce needs at least 2 hosts, not 1"),
        (lambda graph: graph.nodes["b"].update(kind="router"), "kind of node 'b' must be 'host' or 'switch'"),
        (lambda graph: graph.nodes["a"].update(role="ps"), "a has the role 'ps', .*; leave it out"),
        (lambda graph: graph.edges["a", "s"].update(bw_gbps=40.0), "cable .* has 40.0 Gb/s .*; give all cables the"),
        (
            lambda graph: graph.edges["a", "s"].update(reserved_gbps=4.0),
            r"cable .* \(4.0 reserved\) .*; give all cables the",
        ),
        (lambda graph: graph.edges["a", "s"].pop("bw_gbps"), "cable .* has no bw_gbps .*; give all cables the same"),
    ],
)
def test_a_network_that_cannot_be_scheduled_is_refused_by_the_name_of_its_file(written, change, words):
    with pytest.raises(TopologyError, match=rf"^net.json: {words}"):
        read_network(written(network(change)))


def test_too_many_servers_are_refused(written):
    graph = nx.star_graph([f"n{number}" for number in range(258)])
    nx.set_node_attributes(graph, {node: "host" if node != "n0" else "switch" for node in graph}, "kind")
    with pytest.raises(TopologyError, match=r"^net.json: the network must have at most 256 servers .*, not 257"):
        read_network(written(graph))

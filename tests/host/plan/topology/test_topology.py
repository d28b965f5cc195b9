"""Topologies and jobs: groups, ranks, sizes of streams, generated topologies, and what is refused."""

import networkx as nx
import pytest

from iswitch.plan.topology.generators import fat_tree, leaf_spine, seed_example
from iswitch.plan.topology.topology import Job, Topology, TopologyError, natural_key


def test_interchangeable_workers_form_a_group():
    graph = leaf_spine(2, 1, 3)
    graph.edges["leaf2-h3", "leaf2"]["bw_gbps"] = 25.0
    graph.add_edge("leaf1-h1", "leaf2", bw_gbps=10.0)
    topology = Topology.of(graph, aggregates={"spine1": 100})
    assert [(group.at, group.workers, group.nic_gbps) for group in topology.groups()] == [
        ("leaf1", ("leaf1-h2", "leaf1-h3"), 10.0),
        ("leaf2", ("leaf2-h1", "leaf2-h2"), 10.0),
        ("leaf2", ("leaf2-h3",), 25.0),
        ("leaf1-h1", ("leaf1-h1",), 0.0),
    ]


def test_ranks_follow_numbers_in_names():
    topology = Topology.of(leaf_spine(11, 1, 2), aggregates={"spine1": 100})
    assert (
        topology.workers[:4] == ["leaf1-h1", "leaf1-h2", "leaf2-h1", "leaf2-h2"] and topology.workers[-1] == "leaf11-h2"
    )


def test_the_order_of_names_is_total():
    """Names with equal keys would be in the order of a set, which differs between processes."""
    names = ["", "1", "2b", "10a", "10b", "PS", "S2", "S10", "S10-x", "core", "leaf"]
    assert sorted(reversed(names), key=natural_key) == names and len(set(map(tuple, map(natural_key, names)))) == len(
        names
    )


def test_sizes_of_streams():
    """704 bytes of elements take 792 bytes on a cable, and their partial sums 1,496."""
    job = Job()
    assert (job.gradient_size, job.partial_size, job.result_size) == (792 / 704, 1496 / 704, 792 / 704)
    assert Job(return_path="none").result_size == 0
    assert job.slots_gbps(64) == pytest.approx(64 * 704 * 8 / 50e-6 / 1e9)


def test_slots_of_a_fast_cable():
    """10 Gb/s with 1 KiB segments and 50 us needs 62 slots."""
    job = Job(payload_bytes=1024)
    assert job.slots_gbps(61) < 10 < job.slots_gbps(62)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"return_path": "up"}, "return_path of the job must be multicast, unicast or none, not 'up'"),
        ({"payload_bytes": 6}, "payload_bytes of the job must be a multiple of 4, not 6"),
        ({"overhead_bytes": -1}, "overhead_bytes of the job must be at least 0, not -1"),
        ({"uplink_bytes_per_element": 2}, "uplink_bytes_per_element of the job must be at least 4, not 2"),
        ({"round_trip_us": -1.0}, "round_trip_us of the job must be at least 0, not -1.0"),
        ({"gradient_bytes": -4}, "gradient_bytes of the job must be at least 0, not -4"),
        ({"gradient_bytes": 0.5}, "gradient_bytes of the job must be a whole number, not 0.5"),
        ({"payload_bytes": "704"}, "payload_bytes of the job must be a whole number, not '704'"),
        ({"payload_bytes": True}, "payload_bytes of the job must be a whole number, not True"),
        ({"round_trip_us": float("inf")}, "round_trip_us of the job must be a finite number, not inf"),
        ({"gradient_bytes": float("nan")}, "gradient_bytes of the job must be a whole number, not nan"),
    ],
)
def test_job_wrong(settings, why):
    with pytest.raises(TopologyError, match=why):
        Job(**settings)


def test_whole_floats_of_a_job_become_integers():
    graph = seed_example().graph.copy()
    graph.graph.update(payload_bytes=704.0, gradient_bytes=1e8)
    job = Topology(graph).job
    assert (str(job.payload_bytes), str(job.gradient_bytes)) == ("704", "100000000")


def test_directed_and_parallel_graphs_are_refused():
    for kind in (nx.DiGraph, nx.MultiGraph):
        with pytest.raises(TopologyError, match="undirected graph with at most one cable"):
            Topology(kind(seed_example().graph))


def bad(change):
    graph = seed_example().graph.copy()
    change(graph)
    return graph


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda graph: graph.graph.update(nonsense=1), "the job has no setting 'nonsense'; known are return_path,"),
        (lambda graph: graph.graph.update({7: 1}), "the job has no setting '7'"),
        (
            lambda graph: graph.nodes["S1"].update({7: 1}),
            "S1: Keys should be strings, not 7|7 of S1: Keys should be strings",
        ),
        (lambda graph: graph.nodes["S1"].update(colour="red"), "S1 has no setting 'colour'; known are aggregates,"),
        (lambda graph: graph.add_edge("S1", "S1", bw_gbps=1), "not S1 with itself"),
        (
            lambda graph: graph.edges["S1", "S2"].update(bw_gbps=float("inf")),
            "bw_gbps of S1-S2 must be a finite number, not inf",
        ),
        (
            lambda graph: graph.edges["S1", "S2"].update(bw_gbps=True),
            "bw_gbps of S1-S2 must be a number in Gb/s, not True",
        ),
        (lambda graph: graph.nodes["S1"].update(slots=float("inf")), "slots of S1 must be a whole number, not inf"),
        (lambda graph: graph.nodes["S1"].update(slots=float("nan")), "slots of S1 must be a whole number, not nan"),
        (lambda graph: graph.edges["S1", "S2"].update(name="L3"), "two are called L3"),
        (lambda graph: nx.relabel_nodes(graph, {"S1": "a=b"}, copy=False), "a name must be text without"),
        (lambda graph: nx.relabel_nodes(graph, {"S1": 7}, copy=False), "a name must be text|not supported"),
        (lambda graph: graph.remove_nodes_from([f"W{number}" for number in range(1, 9)]), "at least one worker"),
        (lambda graph: graph.remove_edges_from([("S1", "S2"), ("S1", "S3")]), "W1 has no path to PS"),
        (lambda graph: graph.remove_edge("W2", "S1"), "W2 has no cable"),
    ],
)
def test_an_invalid_graph_is_refused(change, why):
    with pytest.raises((TopologyError, TypeError), match=why):
        Topology(bad(change))


def test_a_topology_needs_a_root():
    graph = seed_example().graph.copy()
    graph.nodes["PS"]["role"] = "other"
    Topology(graph)
    for switch in ("S1", "S2", "S3"):
        graph.nodes[switch]["aggregates"] = False
    with pytest.raises(TopologyError, match="a ps, or a switch that aggregates"):
        Topology(graph)


def test_fat_tree_counts_are_those_of_the_paper():
    for k in (2, 4, 6):
        graph = fat_tree(k)
        kinds = [kind for _, kind in graph.nodes(data="kind")]
        assert kinds.count("host") == k**3 // 4 and kinds.count("switch") == 5 * k * k // 4
        assert graph.number_of_edges() == 3 * k**3 // 4 and nx.is_connected(graph)
        assert {graph.degree(node) for node, kind in graph.nodes(data="kind") if kind == "switch"} == {k}


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: fat_tree(3), "k must be even"),
        (lambda: fat_tree(4, bw_gbps=0), "bw_gbps must be above 0"),
        (lambda: fat_tree(4, hosts=0), "hosts must be above 0"),
        (lambda: leaf_spine(0, 1, 1), "leaves must be above"),
        (lambda: leaf_spine(1, 1, 1, uplink_gbps=-1), "uplink_gbps must be above"),
    ],
)
def test_generators_wrong(call, why):
    with pytest.raises(ValueError, match=why):
        call()

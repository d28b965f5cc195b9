"""Node-link JSON and GraphML: files keep the topology; missing units and duplicates are refused."""

import json

import networkx as nx
import pytest

from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.generators import fat_tree, seed_example
from iswitch.plan.topology.graph_file import from_graphml, from_json, node_link, to_graphml, to_json
from iswitch.plan.topology.topology import Topology, TopologyError
from sim.bench.fabrics import random_topology


@pytest.mark.parametrize("seed", range(20))
def test_files_keep_the_topology(seed, tmp_path):
    topology = random_topology(seed, unlike=seed % 2 == 1)
    text = to_json(topology)
    (tmp_path / "fabric.json").write_text(text)
    to_graphml(topology, tmp_path / "fabric.graphml")
    assert (
        to_json(from_json(text))
        == to_json(read_topology(tmp_path / "fabric.json"))
        == to_json(read_topology(tmp_path / "fabric.graphml"))
        == text
    )


def test_the_text_does_not_depend_on_the_order_of_nodes():
    graph = fat_tree(4)
    turned = nx.Graph()
    for node in reversed(list(graph)):
        turned.add_node(node, **graph.nodes[node])
    for a, b in reversed(list(graph.edges)):
        turned.add_edge(b, a, **graph.edges[a, b])
    make = lambda given: to_json(Topology.of(given, aggregates={"core1": 100}))
    assert make(graph) == make(turned)


def test_edges_have_the_new_name_and_the_old_one_is_read():
    data = node_link(seed_example())
    assert "edges" in data and "links" not in data
    assert to_json(from_json(json.dumps(data | {"links": data.pop("edges")}))) == to_json(seed_example())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [{"id": "a"}]}', '{"nodes": 3, "edges": []}'])
def test_text_that_is_not_a_topology_is_refused(text):
    with pytest.raises(TopologyError):
        from_json(text)


def changed(change):
    """Return the text of the example's file after a change of its data."""
    data = node_link(seed_example())
    change(data)
    return json.dumps(data)


TURNED = lambda data: {"source": data["edges"][0]["target"], "target": data["edges"][0]["source"], "bw_gbps": 1}


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda data: data["edges"].append(TURNED(data)), "fabric: cable PS-S3 is there 2 times; write it once, with"),
        (lambda data: data["nodes"].append(data["nodes"][0]), "fabric: node PS is there 2 times"),
        (lambda data: data.update(directed=True), 'fabric: .* write "directed": false'),
        (lambda data: data.update(multigraph=True), "fabric: .* at most one cable between two nodes"),
        (lambda data: data["edges"][0].update(target=["S1"]), r"fabric: the name of a node must be text, not \['S1'\]"),
        (lambda data: data["nodes"][0].update(id=None), "fabric: the name of a node must be text, not None"),
        (lambda data: data["nodes"].append(7), "fabric: not a graph"),
        (lambda data: data["edges"][0].update(target="S9"), "fabric: kind of S9 must be host or switch"),
        (lambda data: data["edges"][0].update(bw_gbps=1e9), "fabric: bw_gbps of PS-S3 must be at most 1e"),
        (lambda data: data["edges"][0].update(bw_gbps=1e-9), "fabric: bw_gbps of PS-S3 must be at least 0.001"),
        (lambda data: data["graph"].update(overhead_bytes=1e30), "fabric: overhead_bytes of the job must be at most"),
        (lambda data: data["graph"].update(round_trip_us=1e30), "fabric: round_trip_us of the job must be at most"),
        (lambda data: data.update(links=[]), 'fabric: the cables are in "edges" and in "links"; write all of them in'),
        (lambda data: data.update(graph=[1]), 'fabric: "graph" must be an object'),
        (lambda data: data["nodes"].append({"id": 1, "kind": "host"}), "fabric: a name must be text .*, not 1"),
    ],
)
def test_what_cannot_be_planned_with_is_refused_with_the_name_of_the_file(change, words):
    with pytest.raises(TopologyError, match=f"^{words}"):
        from_json(changed(change), "fabric")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"nodes":' * 100_000])
def test_brackets_without_end_are_refused(text):
    with pytest.raises(TopologyError, match="fabric: too many levels"):
        from_json(text, "fabric")


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_that_is_not_text_is_refused_by_its_name(suffix, tmp_path):
    path = tmp_path / f"fabric.{suffix}"
    path.write_bytes(b"racks: \xff")
    with pytest.raises(TopologyError, match=rf"^fabric.{suffix} is not text in UTF-8: byte 7 is 0xff; save it as"):
        read_topology(path)


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "fabric.json"
    path.write_text(to_json(seed_example()), encoding="utf-8-sig")
    assert to_json(read_topology(path)) == to_json(seed_example())


def drawn(tmp_path, change):
    graph = seed_example().graph.copy()
    change(graph)
    nx.write_graphml(graph, tmp_path / "drawn.graphml")
    return tmp_path / "drawn.graphml"


def test_attributes_of_a_drawing_tool_are_ignored(tmp_path):
    path = drawn(
        tmp_path, lambda graph: [data.update(x=1.0, colour="red", label="Rack") for _, data in graph.nodes(data=True)]
    )
    assert to_json(from_graphml(path)) == to_json(seed_example())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda graph: graph.edges["S1", "S2"].update(bandwidth=3.0), "bandwidth of S[12]-S[12] is unknown"),
        (lambda graph: graph.edges["S1", "S2"].update(bw=3.0), "bw of"),
        (
            lambda graph: graph.nodes["S1"].update(capacity="9 Gb/s"),
            "capacity of S1 is unknown; known are .*capacity_gbps",
        ),
        (
            lambda graph: [data.update(bw_gbps="3") for *_, data in graph.edges(data=True)],
            "bw_gbps of .* must be a number in Gb/s, not '3'",
        ),
        (lambda graph: graph.edges["S1", "S2"].pop("bw_gbps"), "S1-S2 must have 'bw_gbps'"),
        (lambda graph: graph.nodes["W1"].pop("kind"), "kind of W1 must be host or switch, not None"),
    ],
)
def test_quantities_without_units_are_refused(tmp_path, change, why):
    with pytest.raises(TopologyError, match=f"^drawn.graphml: {why}"):
        from_graphml(drawn(tmp_path, change))


def test_arrows_of_a_drawing_are_cables(tmp_path):
    path = tmp_path / "drawn.graphml"
    arrows = nx.DiGraph(seed_example().graph.edges(data=True), **seed_example().graph.graph)
    arrows.add_nodes_from(seed_example().graph.nodes(data=True))
    nx.write_graphml(arrows, path)
    assert to_json(from_graphml(path)) == to_json(seed_example())


def test_two_cables_are_refused(tmp_path):
    path = tmp_path / "two.graphml"
    to_graphml(seed_example(), path)
    text = path.read_text()
    at = text.index("<edge ")
    edge = text[at : text.index("</edge>") + len("</edge>")]
    path.write_text(text.replace(edge, edge + edge.replace("<edge ", '<edge id="again" ')))
    with pytest.raises(TopologyError, match=r"^two.graphml: cable .* is there 2 times; write it once, with the total"):
        from_graphml(path)


def test_a_repeated_node_is_refused(tmp_path):
    path = tmp_path / "two.graphml"
    to_graphml(seed_example(), path)
    path.write_text(path.read_text().replace('<node id="W2">', '<node id="W1">', 1))
    with pytest.raises(TopologyError, match=r"^two.graphml: node W1 is there 2 times; write it once"):
        from_graphml(path)


def test_a_file_that_is_not_graphml_is_refused(tmp_path):
    path = tmp_path / "none.graphml"
    path.write_text("<graph")
    with pytest.raises(TopologyError, match=r"^none.graphml is not GraphML"):
        from_graphml(path)

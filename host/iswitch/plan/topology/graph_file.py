"""Topologies for programs: node-link JSON in canonical order, and GraphML of drawing tools and inventories."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.job import JobSettings
from iswitch.plan.topology.records import CableRecord, HostRecord, SwitchRecord
from iswitch.plan.topology.topology import Topology, cable_name, natural_key

__all__ = ["from_graphml", "from_json", "node_link", "parse_graph", "to_graphml", "to_json"]

QUANTITIES = (
    "bw",
    "bandwidth",
    "speed",
    "rate",
    "gbps",
    "sender",
    "capacity",
    "ingress",
    "reserved",
    "slots",
    "window",
    "members",
    "aggregat",
    "role",
    "kind",
)
"""An attribute of a drawing with such a part in its name must be known. Others (colours, positions, labels) are
ignored."""


def node_link(topology: Topology) -> dict[str, Any]:
    """Return node-link data of networkx, with `edges`. Equal topologies give equal data, in the order of names."""
    ordered = nx.Graph(**topology.graph.graph)
    for node in sorted(topology.graph, key=natural_key):
        ordered.add_node(node, **topology.graph.nodes[node])
    ends = [sorted(edge, key=natural_key) for edge in topology.graph.edges]
    for a, b in sorted(ends, key=lambda edge: [natural_key(end) for end in edge]):
        ordered.add_edge(a, b, **topology.graph.edges[a, b])
    data: dict[str, Any] = nx.node_link_data(ordered, edges="edges")
    return data


def to_json(topology: Topology) -> str:
    """Return the text of a node-link JSON file."""
    return json.dumps(node_link(topology), indent=1) + "\n"


def from_json(text: str, name: str = "the text") -> Topology:
    """Return the topology of node-link JSON.

    Raises
    ------
    TopologyError
        If the text is not one. Its message begins with `name`, that of the file.
    """
    graph = parse_graph(text, name)
    if "jobs" in graph.graph:
        raise TopologyError(f"{name}: only YAML can have several jobs: write the fabric as YAML, or leave 'jobs' out")
    try:
        return Topology(graph)
    except TopologyError as error:
        raise TopologyError(f"{name}: {error}", error.place) from error


def parse_graph(text: str, name: str) -> nx.Graph:
    """Return the graph of node-link JSON, also of networkx before 3.4 (`links`).

    Raises
    ------
    TopologyError
        If the text is not JSON, or not a graph; the message begins with the name of the file.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyError(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise TopologyError(f"{name}: too many levels of brackets; the format needs 4") from error
    except ValueError as error:
        raise TopologyError(f"{name}: a number has too many digits") from error
    try:
        edges = "edges" if "edges" in data else "links"
        if edges == "edges" and "links" in data:
            raise TopologyError(f'{name}: the cables are in "edges" and in "links"; write all of them in "edges"')
        if not isinstance(data.get("graph", {}), dict):
            raise TopologyError(f'{name}: "graph" must be an object with the settings of the job, or be left out')
        if data.get("directed") or data.get("multigraph"):
            raise TopologyError(
                f"{name}: a topology must be an undirected graph with at most one cable between two nodes; write "
                '"directed": false and "multigraph": false, and several cables as one with their total bw_gbps'
            )
        ids = [node["id"] for node in data["nodes"]]
        ends = [sorted(str(edge[end]) for end in ("source", "target")) for edge in data[edges]]
        for each in [*ids, *(edge[end] for edge in data[edges] for end in ("source", "target"))]:
            if not isinstance(each, str | int):
                raise TopologyError(f"{name}: the name of a node must be text, not {each!r}")
        _refuse_repeated(name, "node", ids)
        _refuse_repeated(name, "cable", ["-".join(pair) for pair in ends])
        return nx.node_link_graph(data, edges=edges)
    except (KeyError, TypeError, AttributeError, nx.NetworkXError) as error:
        raise TopologyError(
            f'{name}: not a graph in networkx\'s node-link JSON, an object with the lists "nodes" and "edges"'
        ) from error


def _refuse_repeated(name: str, what: str, given: list[Any]) -> None:
    for each, count in Counter(given).items():
        if count > 1:
            raise TopologyError(
                f"{name}: {what} {each} is there {count} times; write it once"
                + (", with the total bw_gbps of its cables" if what == "cable" else "")
            )


def to_graphml(topology: Topology, path: Path) -> None:
    """Write a GraphML file."""
    nx.write_graphml(topology.graph, path)


def from_graphml(path: Path) -> Topology:
    """Return the topology of a GraphML file, whose attributes are those of the JSON, with units in their names.

    Attributes that a drawing tool adds are ignored. An arrow of a drawing is a cable like a line, with both directions.

    Raises
    ------
    TopologyError
        If the file is not GraphML or cannot be planned with; the message begins with the name of the file. An attribute
        that looks like a quantity but is not known is refused (`bw`: in which unit?), and so is a number that is
        written as text.
    """
    name = path.name
    try:
        loaded = nx.read_graphml(path)
        ids = [each.get("id") for each in ElementTree.parse(path).iter() if each.tag.rpartition("}")[2] == "node"]
    except (nx.NetworkXError, SyntaxError, KeyError, ValueError) as error:
        raise TopologyError(f"{name} is not GraphML: {error}") from error
    _refuse_repeated(name, "node", ids)
    ends = [sorted(map(str, edge)) for edge in loaded.edges()]
    _refuse_repeated(name, "cable", [cable_name(*pair) for pair in ends])
    graph = nx.Graph()
    try:
        graph.graph |= _check_names("the graph", loaded.graph, JobSettings.model_fields)
        for node, data in loaded.nodes(data=True):
            record = SwitchRecord if data.get("kind") == "switch" else HostRecord
            graph.add_node(str(node), **_check_names(str(node), data, ("kind", *record.model_fields)))
        for a, b, data in loaded.edges(data=True):
            graph.add_edge(str(a), str(b), **_check_names(cable_name(a, b), data, CableRecord.model_fields))
        return Topology(graph)
    except TopologyError as error:
        raise TopologyError(f"{name}: {error}", error.place) from error


def _check_names(name: str, given: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        if key in keys:
            found[key] = value
        elif any(part in key.lower() for part in QUANTITIES):
            raise TopologyError(f"{key} of {name} is unknown; known are {', '.join(keys)}, with their units")
    return found

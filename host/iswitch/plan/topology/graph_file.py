"""Topologies for programs: canonical node-link JSON, and GraphML from drawing tools and inventories."""

import json
from pathlib import Path
from typing import Any

import networkx as nx

from iswitch.plan.topology.topology import EDGE_KEYS, HOST_KEYS, JOB_KEYS, SWITCH_KEYS, Topology, TopologyError, natural

__all__ = ["from_graphml", "from_json", "graph_of", "node_link", "to_graphml", "to_json"]

QUANTITIES = (
    "bw",
    "bandwidth",
    "speed",
    "rate",
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
"""Attributes that look like these must be understood; others of a drawing (colours, places, labels) say nothing
here."""


def node_link(topology: Topology) -> dict[str, Any]:
    """Node-link data of networkx with `edges`, nodes and ends in order, so that equal topologies give equal text."""
    ordered = nx.Graph(**topology.graph.graph)
    for node in sorted(topology.graph, key=natural):
        ordered.add_node(node, **topology.graph.nodes[node])
    ends = [sorted(edge, key=natural) for edge in topology.graph.edges]
    for a, b in sorted(ends, key=lambda edge: [natural(end) for end in edge]):
        ordered.add_edge(a, b, **topology.graph.edges[a, b])
    data: dict[str, Any] = nx.node_link_data(ordered, edges="edges")
    return data


def to_json(topology: Topology) -> str:
    return json.dumps(node_link(topology), indent=1) + "\n"


def from_json(text: str, name: str = "the text") -> Topology:
    """Return the topology of node-link JSON. Raises TopologyError, with the name of the file, if it is another text."""
    return Topology(graph_of(text, name))


def graph_of(text: str, name: str) -> nx.Graph:
    """Return the graph of node-link JSON, also of networkx before 3.4 (`links`).

    Raises
    ------
    TopologyError
        If the text is not JSON, or not a graph; the message begins with the name of the file.
    """
    try:
        data = json.loads(text)
        return nx.node_link_graph(data, edges="edges" if "edges" in data else "links")
    except json.JSONDecodeError as error:
        raise TopologyError(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise TopologyError(
            f'{name}: not a graph in networkx\'s node-link JSON, an object with the lists "nodes" and "edges"'
        ) from error


def to_graphml(topology: Topology, path: Path) -> None:
    nx.write_graphml(topology.graph, path)


def from_graphml(path: Path) -> Topology:
    """Attributes are those of the JSON, units in their names. What a drawing tool adds is left out, but an attribute
    that looks like a quantity and is none that is known is refused: `bw`, in what unit? So is a number that was written
    as text. TopologyError."""
    try:
        drawn = nx.read_graphml(path)
    except (nx.NetworkXError, SyntaxError, KeyError, ValueError) as error:
        raise TopologyError(f"{path} is not GraphML: {error}") from error
    if drawn.is_multigraph():
        raise TopologyError(f"{path} has two cables between the same nodes")
    graph = nx.Graph()
    graph.graph |= _known("the graph", drawn.graph, JOB_KEYS)
    for node, data in drawn.nodes(data=True):
        graph.add_node(str(node), **_known(str(node), data, SWITCH_KEYS if data.get("kind") == "switch" else HOST_KEYS))
    for a, b, data in drawn.edges(data=True):
        if graph.has_edge(str(a), str(b)):
            raise TopologyError(f"{path} has two cables between {a} and {b}")
        graph.add_edge(str(a), str(b), **_known(f"{a}-{b}", data, EDGE_KEYS))
    return Topology(graph)


def _known(name: str, given: dict[str, Any], keys: dict[str, type]) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        if key in keys:
            found[key] = value
        elif any(part in key.lower() for part in QUANTITIES):
            raise TopologyError(f"{key} of {name} is unknown; known are {', '.join(keys)}, with their units")
    return found

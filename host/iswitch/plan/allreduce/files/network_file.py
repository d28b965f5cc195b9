"""Read a network from a file: node-link JSON, checked by the rules of topologies and by those of rounds."""

from pathlib import Path

import networkx as nx

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import require_few_servers
from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.files import read_text
from iswitch.plan.topology.graph_file import parse_graph
from iswitch.plan.topology.job import Job
from iswitch.plan.topology.mistakes import check_attributes
from iswitch.plan.topology.records import CableRecord, HostRecord, SwitchRecord
from iswitch.plan.topology.topology import cable_name

__all__ = ["read_network"]

ANY_GBPS = 1.0
"""The rate of a cable without `bw_gbps`: a schedule needs none, so it may be left out."""


def read_network(path: Path) -> nx.Graph:
    """Return the network of a node-link JSON file.

    Nodes, cables and the graph have the attributes of a topology (`iswitch.plan.topology`), but `bw_gbps` may be left
    out.

    Raises
    ------
    TopologyError
        If the file is not such a graph, or if a schedule in rounds cannot respect it: if a host has a role other than
        worker, if two cables have different rates, or if there are too many servers. The message begins with the name
        of the file.
    OSError
        If the file cannot be read.
    """
    graph = parse_graph(read_text(path), path.name)
    try:
        _check_attributes(graph)
        _require_equal_cables(graph)
        require_few_servers("the network", sum(kind == "host" for _, kind in graph.nodes(data="kind")))
        Network(graph)
    except ValueError as error:
        raise TopologyError(f"{path.name}: {error}") from error
    return graph


def _check_attributes(graph: nx.Graph) -> None:
    Job(**graph.graph)
    for node, data in graph.nodes(data=True):
        if not isinstance(node, str):
            raise TopologyError(f"the name of a node must be text, not {node!r}")
        record = SwitchRecord if data.get("kind") == "switch" else HostRecord
        check_attributes(record, str(node), {key: value for key, value in data.items() if key != "kind"})
    for a, b, data in graph.edges(data=True):
        if a == b:
            raise TopologyError(f"a cable must join two nodes, not {a} with itself")
        check_attributes(CableRecord, cable_name(a, b), {"bw_gbps": ANY_GBPS} | data)


def _require_equal_cables(graph: nx.Graph) -> None:
    """Refuse a network that a schedule in rounds cannot respect: with a parameter server, or with unlike cables.

    Raises
    ------
    ValueError
        If a host has a role other than worker, or if two cables have different rates.
    """
    for node, role in graph.nodes(data="role", default="worker"):
        if role != "worker":
            raise ValueError(
                f"{node} has the role {role!r}, but all servers of a schedule have a gradient; leave it out"
            )
    rates: dict[object, tuple[object, object]] = {}
    for a, b, data in graph.edges(data=True):
        if "sender_gbps" in data:
            raise ValueError(
                f"cable {a}-{b} has unlike rates in its two directions, but in a round every cable carries one chunk "
                "in each; leave out sender and sender_gbps"
            )
        rate = data.get("bw_gbps"), data.get("reserved_gbps", 0)
        rates.setdefault(rate, (a, b))
        if len(rates) > 1:
            (one, first), (other, second) = rates.items()
            words = lambda rate: "no bw_gbps" if rate[0] is None else f"{rate[0]} Gb/s ({rate[1]} reserved)"
            raise ValueError(
                f"cable {first[0]}-{first[1]} has {words(one)} and {second[0]}-{second[1]} has {words(other)}, "
                "but in a round every cable carries one chunk; give all cables the same bw_gbps, or none to count "
                "rounds only"
            )

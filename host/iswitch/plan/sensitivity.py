"""The same fabric, but: a cable or a switch less, some of a cable taken by other traffic, switches that aggregate."""

from iswitch.plan.solver.sites import Upgrade
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["lose", "reserve", "upgrade_of"]


def lose(topology: Topology, given: str) -> Topology:
    """Without a cable (by its name, or its ends as in S1-S3) or a switch. TopologyError if there is no such thing, or
    if a worker is then cut off."""
    graph = topology.graph.copy()
    if given in topology.switches:
        graph.remove_node(given)
    else:
        graph.remove_edge(*topology.find_cable(given))
    return Topology(graph)


def reserve(topology: Topology, given: str) -> Topology:
    """`L1=2.5`: so many Gb/s of a cable, each way, are for others, such as replay; in addition to what is reserved.
    TopologyError."""
    name, _, amount = given.rpartition("=")
    try:
        gbps = float(amount)
        if not (name and gbps >= 0):
            raise ValueError
    except ValueError:
        raise TopologyError(f"a reservation must be LINK=GBPS, such as L1=2.5, not {given!r}") from None
    graph = topology.graph.copy()
    data = graph.edges[topology.find_cable(name)]
    data["reserved_gbps"] = data.get("reserved_gbps", 0.0) + gbps
    return Topology(graph)


def upgrade_of(topology: Topology, count: int, capacity_gbps: float | None = None) -> Upgrade:
    """`count` switches made to aggregate with this capacity; not said, that of the best that there is, or what a
    switch's cables can bring."""
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count!r}")
    known = [topology.graph.nodes[switch]["capacity_gbps"] for switch in topology.aggregators]
    widest = max(sum(data["bw_gbps"] for data in topology.graph[switch].values()) for switch in topology.switches)
    return Upgrade(count, capacity_gbps or max(known, default=widest))

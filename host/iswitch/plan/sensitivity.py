"""Sensitivity analysis: the same topology without a cable or a switch, with other traffic, or with better switches."""

from iswitch.plan.solver.sites import Upgrade
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["make_upgrade", "remove", "reserve"]


def remove(topology: Topology, part: str) -> Topology:
    """Return the topology without a cable or a switch.

    Parameters
    ----------
    topology : Topology
        The topology.
    part : str
        The name of a cable or of a switch, or the ends of a cable, such as ``S1-S3``.

    Raises
    ------
    TopologyError
        If the topology has no such part, or if a worker has no path left.
    """
    graph = topology.graph.copy()
    if part in topology.switches:
        graph.remove_node(part)
    else:
        graph.remove_edge(*topology.find_cable(part))
    for switch in set(topology.switches) & set(graph):
        ports = topology.numbered_ports(switch)
        kept = ", ".join(f"{near}={port}" for near, port in ports.items() if near in graph[switch])
        if ports:
            graph.nodes[switch]["ports"] = kept
            if not kept:
                del graph.nodes[switch]["ports"]
    return Topology(graph)


def reserve(topology: Topology, reservation: str) -> Topology:
    """Return the topology with more bandwidth of a cable reserved for other traffic.

    Parameters
    ----------
    topology : Topology
        The topology.
    reservation : str
        Cable and Gb/s per direction, such as ``L1=2.5``.

    Raises
    ------
    TopologyError
        If the reservation has another form, names no cable, or exceeds its bandwidth.
    """
    name, _, amount = reservation.rpartition("=")
    try:
        gbps = float(amount)
        if not (name and gbps >= 0):
            raise ValueError
    except ValueError:
        raise TopologyError(f"a reservation must be LINK=GBPS, such as L1=2.5, not {reservation!r}") from None
    graph = topology.graph.copy()
    data = graph.edges[topology.find_cable(name)]
    data["reserved_gbps"] = data.get("reserved_gbps", 0.0) + gbps
    return Topology(graph)


def make_upgrade(topology: Topology, count: int, capacity_gbps: float | None = None) -> Upgrade:
    """Return the permission to upgrade switches.

    Parameters
    ----------
    topology : Topology
        The topology.
    count : int
        Most switches to upgrade.
    capacity_gbps : float, optional
        Their new capacity in Gb/s. By default that of the best switch; if no switch aggregates, the total bandwidth of
        the cables at the best-connected one.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count!r}")
    known = [topology.graph.nodes[switch]["capacity_gbps"] for switch in topology.aggregators]
    widest = max(sum(topology.bw_gbps(near, switch) for near in topology.graph[switch]) for switch in topology.switches)
    return Upgrade(count, capacity_gbps or max(known, default=widest))

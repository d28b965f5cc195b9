"""Where sums can be formed."""

from typing import NamedTuple

from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.topology.topology import Topology

__all__ = ["Site", "Upgrade", "sites"]


class Upgrade(NamedTuple):
    """At most so many switches may be made to aggregate with this capacity."""

    most: int
    capacity_gbps: float


class Site(NamedTuple):
    """A place where sums can be formed: a switch, as it is or upgraded, or the ps."""

    at: str
    capacity_gbps: float = INFINITY
    slots: int | None = None
    members: int | None = None
    upgraded: bool = False


def sites(topology: Topology, upgrade: Upgrade | None = None) -> list[Site]:
    """Switches that aggregate, and those that an upgrade could make faster once more as they would be then."""
    found = []
    for switch in topology.switches:
        data = topology.graph.nodes[switch]
        now = data["capacity_gbps"] if data["aggregates"] else 0.0
        if now:
            found.append(Site(switch, now, data.get("slots"), data.get("members")))
        if upgrade and upgrade.most and upgrade.capacity_gbps > now:
            found.append(Site(switch, upgrade.capacity_gbps, data.get("slots"), data.get("members"), True))
    return found

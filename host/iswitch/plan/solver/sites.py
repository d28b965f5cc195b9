"""Sites: the places where sums can be formed."""

from typing import NamedTuple

from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.topology.topology import Topology

__all__ = ["Site", "Upgrade", "find_sites"]


class Upgrade(NamedTuple):
    """Permission to upgrade at most `count_max` switches to a capacity of `capacity_gbps`."""

    count_max: int
    capacity_gbps: float


class Site(NamedTuple):
    """A switch as it is, a switch as it would be after an upgrade, or the ps. None limits nothing."""

    at: str
    capacity_gbps: float = INFINITY
    slots: int | None = None
    members: int | None = None
    upgraded: bool = False


def find_sites(topology: Topology, upgrade: Upgrade | None = None) -> list[Site]:
    """Return the sites of all switches.

    A switch that the upgrade would make faster has a second site, as it would be then.
    """
    found = []
    for switch in topology.switches:
        data = topology.graph.nodes[switch]
        now = data["capacity_gbps"] if data["aggregates"] else 0.0
        if now:
            found.append(Site(switch, now, topology.slots(switch), data.get("members")))
        if upgrade and upgrade.count_max and upgrade.capacity_gbps > now:
            found.append(Site(switch, upgrade.capacity_gbps, topology.slots(switch), data.get("members"), True))
    return found

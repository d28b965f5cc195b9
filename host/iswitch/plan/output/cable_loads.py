"""Loads of a plan on the two directions of each cable, which may have unlike rates."""

from typing import NamedTuple

from iswitch.plan.output.words import short
from iswitch.plan.solver.tree import Plan, Resource, capacities, total_loads
from iswitch.plan.topology.topology import Topology

__all__ = ["CableLoads", "Direction", "format_loads"]


class Direction(NamedTuple):
    """Load and capacity of one direction of a cable, in Gb/s."""

    load: float
    capacity: float

    @property
    def is_full(self) -> bool:
        """Whether the load takes the whole capacity."""
        return self.load >= self.capacity * (1 - 1e-6)

    @property
    def share(self) -> float:
        """Part of the capacity that the load takes; 1 without capacity."""
        return self.load / self.capacity if self.capacity else 1.0


class CableLoads:
    """Loads of all trees of a plan on cables.

    Parameters
    ----------
    topology : Topology
        The topology.
    plan : Plan
        The plan.
    """

    def __init__(self, topology: Topology, plan: Plan):
        self._load, self._capacity = total_loads(topology, plan.trees), capacities(topology)

    def both(self, a: str, b: str) -> tuple[Direction, Direction]:
        """Return the directions of a cable: from a to b, and back."""
        return self._direction(a, b), self._direction(b, a)

    def _direction(self, at: str, to: str) -> Direction:
        resource = Resource("link", at, to)
        return Direction(self._load.get(resource, 0.0), self._capacity[resource])


def format_loads(signs: str, one: Direction, other: Direction) -> str:
    """Return the loads of both directions with their signs, and the capacity, once if both have the same."""
    if one.capacity == other.capacity:
        return f"{signs[0]}{short(one.load)} {signs[1]}{short(other.load)}/{short(one.capacity)}"
    return f"{signs[0]}{short(one.load)}/{short(one.capacity)} {signs[1]}{short(other.load)}/{short(other.capacity)}"

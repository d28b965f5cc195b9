"""Arcs that streams can take: between switches, from hosts, and to the ps. Hosts do not forward."""

from collections import deque
from itertools import pairwise

from iswitch.plan.topology.topology import Group, Topology

__all__ = ["Arc", "Arcs", "can_sum_at", "take_path"]

Arc = tuple[str, str]
"""A direction of a cable, as (from, to)."""


class Arcs:
    """The arcs of a topology.

    Parameters
    ----------
    topology : Topology
        The topology.

    Attributes
    ----------
    multi_homed : set of str
        Workers with several cables. A worker with a single cable is no node here: its gradients start at its switch.
    nodes : list of str
        Switches, multi-homed workers, and the ps.
    up, down : list of Arc
        Arcs for gradients and partial sums, and arcs for results, in the order of names.
    """

    def __init__(self, topology: Topology):
        self.multi_homed = {worker for worker in topology.workers if len(topology.graph[worker]) > 1}
        self.ps = topology.ps
        self.nodes = [*topology.switches, *sorted(self.multi_homed), *([self.ps] if self.ps else [])]
        known = set(self.nodes)
        arcs = sorted(
            arc
            for a, b in topology.graph.edges
            if a in known and b in known
            for arc in ((a, b), (b, a))
            if topology.free_gbps(*arc)
        )
        # With multicast, results return over the cables by which the gradients came.
        returns = set(arcs) if topology.job.multicast else {arc[::-1] for arc in arcs}
        self.up: list[Arc] = [
            (at, to) for at, to in arcs if at != self.ps and to not in self.multi_homed and (to, at) in returns
        ]
        self.down: list[Arc] = [(at, to) for at, to in arcs if to != self.ps and at not in self.multi_homed]

    def toward(self, place: str, adjacent: bool = False) -> list[Arc]:
        """Return the arcs for streams that end at `place`; with `adjacent`, only those from its neighbours."""
        return [
            (at, to)
            for at, to in self.up
            if at != place and (to == place if adjacent else to in (place,) or to != self.ps)
        ]


def can_sum_at(group: Group, place: str, adjacent: bool) -> bool:
    """Return True if `place` may sum the gradients of a group.

    With `adjacent`, only a neighbour may. For workers with a single cable that is their switch.
    """
    return not adjacent or place == group.at or (group.at,) == group.workers


def take_path(flow: dict[Arc, int], start: str, end: str) -> tuple[str, ...]:
    """Remove one unit of flow along a shortest path from `start` to `end`, and return the path.

    Parameters
    ----------
    flow : dict of Arc to int
        Units of flow on each arc. The path takes one unit from each of its arcs.
    """
    before: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting and end not in before:
        node = waiting.popleft()
        for (at, to), units in flow.items():
            if at == node and units > 0 and to not in before:
                before[to] = node
                waiting.append(to)
    path = [end]
    while (node_before := before[path[-1]]) is not None:
        path.append(node_before)
    path.reverse()
    for arc in pairwise(path):
        flow[arc] -= 1
    return tuple(path)

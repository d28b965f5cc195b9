"""The ways that streams can take: between switches, from hosts and to the ps; no host passes anything on."""

from collections import deque
from itertools import pairwise

from iswitch.plan.topology.topology import Group, Topology

__all__ = ["Arc", "Arcs", "decompose", "reaches"]

Arc = tuple[str, str]


class Arcs:
    """nodes: switches, the ps, and workers of several cables (`lone`); workers of one cable are where their switch
    is."""

    def __init__(self, topology: Topology):
        self.lone = {worker for worker in topology.workers if len(topology.graph[worker]) > 1}
        self.ps = topology.ps
        self.nodes = [*topology.switches, *sorted(self.lone), *([self.ps] if self.ps else [])]
        there = set(self.nodes)
        both = sorted(
            arc
            for a, b in topology.graph.edges
            if a in there and b in there
            for arc in ((a, b), (b, a))
            if topology.free_gbps(a, b)
        )
        self.up: list[Arc] = [(at, to) for at, to in both if at != self.ps and to not in self.lone]
        self.down: list[Arc] = [(at, to) for at, to in both if to != self.ps and at not in self.lone]

    def toward(self, place: str, adjacent: bool = False) -> list[Arc]:
        """For streams that end at `place`, with `adjacent` from its neighbours only."""
        return [
            (at, to)
            for at, to in self.up
            if at != place and (to == place if adjacent else to in (place,) or to != self.ps)
        ]


def reaches(group: Group, place: str, adjacent: bool) -> bool:
    """Whether workers may be summed there: with `adjacent` by a neighbour, which for those of one cable is their
    switch."""
    return not adjacent or place == group.at or (group.at,) == group.workers


def decompose(flow: dict[Arc, int], start: str, end: str) -> tuple[str, ...]:
    """A shortest way along arcs that carry something, of which it takes one unit."""
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

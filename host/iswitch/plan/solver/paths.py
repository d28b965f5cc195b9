"""Shortest paths from everywhere to one place, by the price of arcs or by their number."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable

from iswitch.plan.solver.arcs import Arc

__all__ = ["ShortestPaths"]


class ShortestPaths:
    """Cheapest paths to `place` along `arcs`; of equals, the one with the fewest arcs, then the first by name.

    Parameters
    ----------
    place : str
        The end of all paths.
    arcs : iterable of Arc
        Arcs that paths may take.
    price : callable
        The price of an arc, 0 or more.

    Attributes
    ----------
    cost : dict of str to float
        The price of the path from each node that has one.
    """

    def __init__(self, place: str, arcs: Iterable[Arc], price: Callable[[Arc], float]):
        into = defaultdict(list)
        for at, to in arcs:
            into[to].append(at)
        self.cost: dict[str, float] = {}
        self._next: dict[str, str] = {}
        waiting: list[tuple[float, int, str, str]] = [(0.0, 0, place, place)]
        while waiting:
            cost, hops, node, onward = heapq.heappop(waiting)
            if node in self.cost:
                continue
            self.cost[node], self._next[node] = cost, onward
            for at in into[node]:
                if at not in self.cost:
                    heapq.heappush(waiting, (cost + price((at, node)), hops + 1, at, node))

    def path(self, start: str) -> tuple[str, ...]:
        """Return the nodes of the path from `start`, with both ends."""
        path = [start]
        while self._next[path[-1]] != path[-1]:
            path.append(self._next[path[-1]])
        return tuple(path)

"""Shortest ways by prices or by hops, to one place from everywhere."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable

from iswitch.plan.solver.arcs import Arc

__all__ = ["Ways"]


class Ways:
    """To `place` along `arcs`, each at a price of 0 or more; of ways with one price the one of fewest arcs, then by
    names."""

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
        """With both ends."""
        path = [start]
        while self._next[path[-1]] != path[-1]:
            path.append(self._next[path[-1]])
        return tuple(path)

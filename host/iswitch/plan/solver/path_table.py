"""Paths of few hops between the nodes of a topology, each found once."""

from collections import defaultdict, deque
from itertools import takewhile
from weakref import WeakKeyDictionary

from iswitch.plan.solver.arcs import Arcs
from iswitch.plan.topology.topology import Topology

__all__ = ["EQUAL_MAX", "PathTable"]

PATHS_MAX = 8
"""Most paths between two nodes."""
EQUAL_MAX = 16
"""Most shortest paths between two nodes."""
DETOUR_HOPS = 1
"""By how many hops a path may be longer than the shortest one."""
EXPANSIONS_MAX = 2000
"""Most nodes that the search for the paths between two nodes visits."""


class PathTable:
    """The short paths of streams, along the arcs that they can take.

    Parameters
    ----------
    arcs : Arcs
        The arcs of a topology.
    """

    _known: WeakKeyDictionary[Topology, "PathTable"] = WeakKeyDictionary()

    def __init__(self, arcs: Arcs):
        self.arcs = arcs
        self._into = defaultdict(list)
        for at, to in self.arcs.up:
            self._into[to].append(at)
        self._hops: dict[str, dict[str, int]] = {}
        self._ahead: dict[str, dict[str, list[str]]] = {}
        self._paths: dict[tuple[str, str, bool], list[tuple[str, ...]]] = {}
        self._shortest: dict[tuple[str, str], list[tuple[str, ...]]] = {}

    @classmethod
    def of(cls, topology: Topology) -> "PathTable":
        """Return the table of a topology, which all parts of the planner share."""
        if topology not in cls._known:
            cls._known[topology] = cls(Arcs(topology))
        return cls._known[topology]

    def hops(self, place: str) -> dict[str, int]:
        """Return the hops to a place from each node that has a path."""
        if place not in self._hops:
            found, waiting = {place: 0}, deque([place])
            while waiting:
                node = waiting.popleft()
                for at in self._into[node] if node == place or node != self.arcs.ps else ():
                    if at not in found:
                        found[at] = found[node] + 1
                        waiting.append(at)
            self._hops[place] = found
        return self._hops[place]

    def _ahead_of(self, place: str) -> dict[str, list[str]]:
        """Return for each node the next nodes of paths to a place."""
        if place not in self._ahead:
            # The nearest to the place come first, since `hops` has them first.
            ahead = defaultdict(list)
            for node in self.hops(place):
                for at in self._into[node] if node == place or node != self.arcs.ps else ():
                    ahead[at].append(node)
            self._ahead[place] = ahead
        return self._ahead[place]

    def shortest(self, start: str, place: str) -> list[tuple[str, ...]]:
        """Return the shortest paths, at most `EQUAL_MAX` of them; none if there is no path."""
        if (found := self._shortest.get((start, place))) is None:
            hops, ahead = self.hops(place), self._ahead_of(place)
            found = []
            waiting: list[tuple[str, ...]] = [(start,)] if start in hops else []
            while waiting and len(found) < EQUAL_MAX:
                path = waiting.pop()
                if path[-1] == place:
                    found.append(path)
                else:
                    nearer = takewhile(lambda near: hops[near] < hops[path[-1]], ahead[path[-1]])
                    waiting += [(*path, near) for near in nearer][::-1]
            self._shortest[start, place] = found
        return found

    def paths(self, start: str, place: str, adjacent: bool) -> list[tuple[str, ...]]:
        """Return some of the shortest paths, and of those that are little longer, the shortest first."""
        if (known := self._paths.get((start, place, adjacent))) is None:
            known = self._paths[start, place, adjacent] = self._find_paths(start, place, adjacent)
        return known

    def _find_paths(self, start: str, place: str, adjacent: bool) -> list[tuple[str, ...]]:
        if start == place:
            return [(start,)]
        hops = self.hops(place)
        if start not in hops:
            return []
        if adjacent:
            return [(start, place)] if hops[start] == 1 else []
        found: list[tuple[str, ...]] = []
        ahead = self._ahead_of(place)
        for extra in range(DETOUR_HOPS + 1):
            waiting: list[tuple[str, ...]] = [(start,)]
            expansions = 0
            while waiting and len(found) < PATHS_MAX and expansions < EXPANSIONS_MAX:
                path = waiting.pop()
                expansions += 1
                for near in ahead[path[-1]]:
                    if len(path) + hops[near] > hops[start] + extra:
                        break
                    if near in path:
                        continue
                    if near != place:
                        waiting.append((*path, near))
                    elif len(path) == hops[start] + extra:
                        found.append((*path, near))
        return found[:PATHS_MAX]

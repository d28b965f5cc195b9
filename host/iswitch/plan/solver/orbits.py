"""Symmetry of a fabric: nodes that can change places, such as identical racks.

Two nodes are twins if they have the same settings, the same neighbours by the same cables, and the same workers. Every
exchange of twins maps the fabric onto itself. So tuples of nodes (a home, an arc toward a place) fall into orbits, and
a linear program has an optimum that is equal on each orbit.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from iswitch.plan.solver.arcs import Arcs
from iswitch.plan.topology.topology import Topology

__all__ = ["Key", "Orbits"]

Key = tuple[Hashable, ...]
"""Names an orbit."""


class Orbits:
    """The orbits of a topology's nodes under exchanges of twins.

    Parameters
    ----------
    topology : Topology
        The topology.
    arcs : Arcs
        Its arcs.

    Attributes
    ----------
    classes : list of list of str
        The nodes of `arcs`, in classes of twins.
    """

    def __init__(self, topology: Topology, arcs: Arcs):
        nodes = set(arcs.nodes)
        groups = defaultdict(list)
        for group in topology.groups():
            groups[group.at].append((group.nic_gbps, len(group.workers)))
        found: dict[Hashable, list[str]] = {}
        for node in arcs.nodes:
            data = topology.graph.nodes[node]
            settings = tuple(
                data.get(key) for key in ("kind", "role", "aggregates", "capacity_gbps", "slots", "members")
            )
            cables = frozenset(
                (near, topology.free_gbps(node, near), topology.free_gbps(near, node))
                for near in topology.graph[node]
                if near in nodes
            )
            found.setdefault((settings, cables, tuple(sorted(groups[node]))), []).append(node)
        self.classes = list(found.values())
        self._class = {node: number for number, members in enumerate(self.classes) for node in members}
        self._alone = {members[0] for members in self.classes if len(members) == 1}

    def key(self, *nodes: str) -> Key:
        """Return the same key for all tuples of nodes of one orbit."""
        seen: dict[str, int] = {}
        found: list[Hashable] = []
        for node in nodes:
            if node not in self._alone:
                seen.setdefault(node, len(seen))
                found.append((self._class[node], seen[node]))
            else:
                found.append(node)
        return tuple(found)

    def few(self, count: int) -> list[str]:
        """Return the first `count` nodes of each class. Every orbit of tuples so long has one tuple of these nodes."""
        return [node for members in self.classes for node in members[:count]]

    def first(self, tuples: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
        """Return the first of these tuples of each orbit."""
        found: dict[Key, tuple[str, ...]] = {}
        for nodes in tuples:
            found.setdefault(self.key(*nodes), tuple(nodes))
        return list(found.values())

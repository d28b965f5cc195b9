"""The streams of a tree with one root: where they start, which routes they can take, and the tree that routes make."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from iswitch.plan.solver.arcs import can_sum_at
from iswitch.plan.solver.routes import Network, Routes
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Tree, at_full_rate
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["Stream", "Streams"]


class Stream(NamedTuple):
    """Streams of one kind with the same start: workers of a group, the sum of a switch, or results of a group."""

    kind: str
    start: str
    owner: str
    """The first worker of the group, or the switch."""


class Streams:
    """All streams that a tree with one root can have, each with its routes, which are made once.

    Parameters
    ----------
    topology : Topology
        The topology.
    sites : sequence of Site
        Places where sums can be formed, beside the ps; at most one for each switch.
    levels : {1, None}
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    root : str
        The ps, or the switch at which sums end.

    Attributes
    ----------
    sites : list of str
        The switches that can sum, but the root.
    groups : dict of str to Group
        Interchangeable workers, by the first of them.
    """

    def __init__(self, topology: Topology, sites: Sequence[Site], *, levels: int | None, adjacent: bool, root: str):
        self.topology, self.levels, self.adjacent, self.root = topology, levels, adjacent, root
        self.sites = [site.at for site in sites if site.at != root]
        self.network = Network(topology, sites)
        self.groups = {group.workers[0]: group for group in topology.groups()}
        self._routes: dict[tuple[str, str], Routes] = {}

    def routes(self, stream: Stream) -> Routes:
        """Return the routes of a stream."""
        if (found := self._routes.get((stream.kind, stream.start))) is not None:
            return found
        if stream.kind == "gradient":
            group = self.groups[stream.owner]
            ends = [end for end in (*self.sites, self.root) if can_sum_at(group, end, self.adjacent)]
        elif stream.kind == "sum":
            ends = [self.root, *(site for site in self.sites if site != stream.start and self.levels != 1)]
        else:
            ends = [self.root]
        found = Routes(self.network, stream.start, stream.kind, ends, self.adjacent and stream.kind != "result")
        self._routes[stream.kind, stream.start] = found
        return found

    def tree(self, counts: Mapping[Stream, Mapping[int, int]]) -> Tree:
        """Return the tree, at its full rate, in which each route is taken by so many streams."""
        homes: dict[str, str] = {}
        up: dict[str, tuple[str, ...]] = {}
        down: dict[str, tuple[str, ...]] = {}
        parents: dict[str, str] = {}
        for stream, taken in counts.items():
            routes = self.routes(stream)
            order = sorted(taken, key=lambda route: _order(routes, route))
            each = [routes.paths[route] for route in order for _ in range(taken[route])]
            if stream.kind == "sum":
                for path in each:
                    parents[stream.start], up[stream.start] = path[-1], path
                continue
            for worker, path in zip(self.groups[stream.owner].workers, each):
                own = () if stream.start == worker else (worker,)
                if stream.kind == "gradient":
                    homes[worker], up[worker] = path[-1], (*own, *path)
                else:
                    down[worker] = (*path[::-1], *own)
        workers, summing = sorted(homes, key=natural_key), sorted(parents, key=natural_key)
        return at_full_rate(
            self.topology,
            Tree(
                rate_gbps=0.0,
                root=self.root,
                homes={worker: homes[worker] for worker in workers},
                parents={switch: parents[switch] for switch in summing},
                up={child: up[child] for child in (*workers, *summing)},
                down={worker: down[worker] for worker in workers if down},
            ),
        )


def _order(routes: Routes, route: int) -> tuple[bool, list[tuple[int, int | str]], int]:
    end = routes.ends[route]
    return (end != routes.start, natural_key(end), route)

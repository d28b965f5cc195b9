"""Routes that a stream can take: where it is summed, over which path, and the loads that this puts on resources."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Resource, capacities
from iswitch.plan.topology.topology import Topology

__all__ = ["Network", "Routes"]


class Network:
    """The resources of a topology by number, and the paths between its nodes.

    Parameters
    ----------
    topology : Topology
        The topology.
    sites : sequence of Site
        Places where sums can be formed, beside the ps; at most one for each switch.

    Attributes
    ----------
    numbers : dict of Resource to int
        Numbers of the resources. The cables of workers with a single cable are left out, since their load is fixed.
    gbps : array of float
        Gb/s of each resource, then the members of each site that limits them, and infinity at the end.
    members : dict of str to int
        Number of the place in `gbps` for the members of a site.
    """

    def __init__(self, topology: Topology, sites: Sequence[Site]):
        self.topology, self.table = topology, PathTable.of(topology)
        nodes = set(self.table.arcs.nodes)
        available = {
            resource: gbps
            for resource, gbps in capacities(topology).items()
            if resource.kind != "link" or (resource.at in nodes and resource.to in nodes)
        }
        self.numbers = {resource: number for number, resource in enumerate(available)}
        limits = list(available.values())
        self.members: dict[str, int] = {}
        for site in sites:
            if site.members is not None:
                self.members[site.at] = len(limits)
                limits.append(float(site.members))
        self.gbps: npt.NDArray[np.float64] = np.array([*limits, INFINITY])
        self.rated = np.ones(len(self.gbps), bool)
        self.rated[list(self.members.values())] = False
        self.paths, self.shortest = self.table.paths, self.table.shortest


class Routes:
    """All routes of the streams of one kind that start at a node.

    Parameters
    ----------
    network : Network
        Resources and paths.
    start : str
        The node at which the streams start.
    kind : {"gradient", "sum", "result"}
        What they carry. A result takes its path from the end to the start.
    ends : iterable of str
        Nodes that may sum them.
    adjacent : bool
        Let each node sum only its neighbours.

    Attributes
    ----------
    paths : list of tuple of str
        The path of each route.
    places : array of int, shape (routes, places)
        Resources of each route, padded with the last number of `Network.gbps`.
    sizes : array of float, shape (routes, places)
        Load of a stream on them for 1 Gb/s of rate, padded with 0.
    """

    def __init__(self, network: Network, start: str, kind: str, ends: Iterable[str], adjacent: bool):
        self.network, self.start, self.kind = network, start, kind
        self.paths = [path for end in ends for path in network.paths(start, end, adjacent)]
        self._numbers = {path: number for number, path in enumerate(self.paths)}
        self._pack()

    def _pack(self) -> None:
        loads = [self._load(path) for path in self.paths]
        width = max((len(load) for load in loads), default=1)
        self.places = np.full((len(loads), width), len(self.network.gbps) - 1)
        self.sizes = np.zeros((len(loads), width))
        for row, load in enumerate(loads):
            self.places[row, : len(load)] = list(load)
            self.sizes[row, : len(load)] = list(load.values())
        self.ends = [path[-1] for path in self.paths]
        self.of_end = defaultdict(list)
        for row, end in enumerate(self.ends):
            self.of_end[end].append(row)

    def number(self, path: tuple[str, ...]) -> int:
        """Return the number of the route with this path, which is added if it is new."""
        if path not in self._numbers:
            self._numbers[path] = len(self.paths)
            self.paths.append(path)
            self._pack()
        return self._numbers[path]

    def _load(self, path: tuple[str, ...]) -> dict[int, float]:
        job, numbers, found = self.network.topology.job, self.network.numbers, defaultdict[int, float](float)
        size = {"gradient": job.gradient_size, "sum": job.partial_size, "result": job.result_size}[self.kind]
        for at, to in pairwise(path):
            if self.kind == "result":
                found[numbers[Resource("link", to, at)]] += size
                continue
            found[numbers[Resource("link", at, to)]] += size
            if job.multicast:
                found[numbers[Resource("link", to, at)]] += job.result_size
        if self.kind == "result":
            return found
        end = path[-1]
        sums = Resource("ingress" if end == self.network.topology.ps else "capacity", end)
        if sums in numbers:
            found[numbers[sums]] += size
        if end in self.network.members:
            found[self.network.members[end]] += 1
        slots = Resource("slots", self.start)
        if self.kind == "sum" and slots in numbers:
            found[numbers[slots]] += 1
        return found

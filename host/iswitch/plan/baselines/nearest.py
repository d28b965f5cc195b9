"""Trees whose streams take shortest paths by hops, for a given assignment of workers to switches.

Where several paths are equally short, the switches that forward spread packets over them (ECMP). Here they spread
them evenly, which is the best case: such a plan is several trees of equal rate, one for each choice of paths.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from iswitch.plan.solver.path_table import EQUAL_MAX, PathTable
from iswitch.plan.solver.sites import Site, find_sites
from iswitch.plan.solver.tree import Resource, Tree, capacities, fit_rates
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["Load", "NearestTrees"]


class Load(NamedTuple):
    """The Gb/s on some resources, by number, for 1 Gb/s of rate."""

    places: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.float64]


class NearestTrees:
    """Makes trees of shortest paths whose sums end at the ps.

    Parameters
    ----------
    topology : Topology
        A topology with a ps.

    Attributes
    ----------
    sites : dict of str to Site
        Switches that aggregate.
    start : dict of str to str
        For each worker the node at which its paths start: its switch, or itself if it has several cables.
    gbps : array of float
        Gb/s of each resource.
    fixed : array of float
        Loads that every tree has: the cables of workers, and unicast results.
    """

    def __init__(self, topology: Topology):
        if topology.ps is None:
            raise TopologyError("this scheme needs a ps")
        self.topology, self.ps = topology, topology.ps
        self.sites: dict[str, Site] = {site.at: site for site in find_sites(topology)}
        self.start = {worker: group.at for group in topology.groups() for worker in group.workers}
        available = capacities(topology)
        self._number = {resource: number for number, resource in enumerate(available)}
        self.gbps: npt.NDArray[np.float64] = np.array(list(available.values()))
        self.fixed = np.zeros(len(self.gbps))
        for worker, at in self.start.items():
            if at != worker:
                self.fixed[self._number[Resource("link", worker, at)]] += topology.job.gradient_size
                self.fixed[self._number[Resource("link", at, worker)]] += topology.job.result_size
        if topology.job.unicast:
            for at, count in Counter(self.start.values()).items():
                results = self._load((path, topology.job.result_size, True) for path in self._paths(at, self.ps))
                self.fixed[results.places] += count * results.sizes
        self.gradient = cache(self._gradient)
        """Load of a worker's stream from where it starts to its home."""
        self.partial_sum = cache(self._partial_sum)
        """Load of a switch's sum on its way to its parent."""

    def _paths(self, start: str, end: str) -> list[tuple[str, ...]]:
        if not (paths := PathTable.of(self.topology).shortest(start, end)):
            raise TopologyError(f"no path with free bandwidth leads from {start} to {end}")
        return paths

    def _load(self, paths: Iterable[tuple[tuple[str, ...], float, bool]]) -> Load:
        """Return the load of a stream of a size that is spread evenly over paths, some of which are taken backwards."""
        found: dict[int, float] = defaultdict(float)
        every, multicast = list(paths), self.topology.job.multicast
        for path, size, backward in every:
            for at, to in pairwise(path[::-1] if backward else path):
                found[self._number[Resource("link", at, to)]] += size / len(every)
                if multicast:
                    found[self._number[Resource("link", to, at)]] += self.topology.job.result_size / len(every)
        return Load(np.array(list(found), np.int64), np.array(list(found.values()), float))

    def _summed(self, load: Load, end: str, size: float, slots_at: str = "") -> Load:
        extra = {Resource("ingress" if end == self.ps else "capacity", end): size, Resource("slots", slots_at): 1.0}
        known = {self._number[resource]: more for resource, more in extra.items() if resource in self._number}
        return Load(np.append(load.places, list(known)).astype(np.int64), np.append(load.sizes, list(known.values())))

    def _gradient(self, at: str, home: str) -> Load:
        size = self.topology.job.gradient_size
        return self._summed(self._load((path, size, False) for path in self._paths(at, home)), home, size)

    def _partial_sum(self, site: str, parent: str) -> Load:
        size = self.topology.job.partial_size
        return self._summed(self._load((path, size, False) for path in self._paths(site, parent)), parent, size, site)

    def loads(
        self, counts: Mapping[tuple[str, str], int], parents: Mapping[str, str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the load of each resource for 1 Gb/s of rate.

        Parameters
        ----------
        counts : mapping of (str, str) to int
            Number of workers by where they start and their home.
        parents : mapping of str to str, optional
            Switches that sum, and what sums their sums; by default all send them to the ps.
        """
        found = self.fixed.copy()
        for (at, home), number in counts.items():
            load = self.gradient(at, home)
            found[load.places] += number * load.sizes
        if parents is None:
            parents = {home: self.ps for (_, home), number in counts.items() if number and home != self.ps}
        for site, parent in parents.items():
            load = self.partial_sum(site, parent)
            found[load.places] += load.sizes
        return found

    def rate(self, loads: npt.NDArray[np.float64]) -> float:
        """Return the highest rate at which loads of 1 Gb/s fit."""
        used = loads > 0
        return float((self.gbps[used] / loads[used]).min()) if used.any() else 0.0

    def count(self, homes: Mapping[str, str]) -> Counter[tuple[str, str]]:
        """Return the number of workers by where they start and their home."""
        return Counter((self.start[worker], home) for worker, home in homes.items())

    def trees(self, homes: Mapping[str, str], parents: Mapping[str, str] | None = None) -> tuple[Tree, ...]:
        """Return the trees in which each worker is summed at its home, together at the highest rate.

        All have the same rate. They differ in which of several equally short paths a stream takes.
        """
        if parents is None:
            parents = {home: self.ps for home in homes.values() if home != self.ps}
        ends = {*self.count(homes), *parents.items()}
        backward = {(at, self.ps) for at in self.start.values()} if self.topology.job.unicast else set()
        choices = {len(self._paths(*pair)) for pair in ends | backward}
        number = lcm(*choices)
        number = number if number <= EQUAL_MAX else max(choices)
        made = tuple(self._tree(homes, parents, choice, 1.0 / number) for choice in range(number))
        counts = self.count(homes)
        # The trees together need not fit yet.
        rate = self.rate(self.loads(counts, parents))
        return fit_rates(self.topology, [self._at_rate(tree, rate) for tree in made])

    @staticmethod
    def _at_rate(tree: Tree, rate_gbps: float) -> Tree:
        return Tree(
            rate_gbps=tree.rate_gbps * rate_gbps,
            root=tree.root,
            homes=tree.homes,
            parents=tree.parents,
            up=tree.up,
            down=tree.down,
        )

    def _tree(self, homes: Mapping[str, str], parents: Mapping[str, str], choice: int, rate_gbps: float) -> Tree:
        up, down = {}, {}
        seen: Counter[tuple[str, str]] = Counter()

        def take(start: str, end: str) -> tuple[str, ...]:
            paths = self._paths(start, end)
            seen[start, end] += 1
            return paths[(seen[start, end] - 1 + choice) % len(paths)]

        for worker, home in homes.items():
            at = self.start[worker]
            own = () if at == worker else (worker,)
            up[worker] = (*own, *take(at, home))
            if self.topology.job.unicast:
                down[worker] = (*take(at, self.ps)[::-1], *own)
        up |= {site: take(site, parent) for site, parent in parents.items()}
        return Tree(rate_gbps=rate_gbps, root=self.ps, homes=dict(homes), parents=dict(parents), up=up, down=down)

    def has_room(self, counts: Mapping[tuple[str, str], int], parents: Mapping[str, str] | None = None) -> bool:
        """Return True if no switch has more members than it can have."""
        members: Counter[str] = Counter()
        for (_, home), number in counts.items():
            members[home] += number
        members.update((parents or {}).values())
        return all(members[at] <= site.members for at, site in self.sites.items() if site.members is not None)

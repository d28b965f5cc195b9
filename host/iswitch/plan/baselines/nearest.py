"""Trees whose streams take shortest paths by hops, for a given assignment of workers to switches."""

from collections.abc import Mapping

from iswitch.plan.solver.arcs import Arcs
from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.paths import ShortestPaths
from iswitch.plan.solver.sites import Site, find_sites
from iswitch.plan.solver.tree import Tree, at_full_rate
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["NearestTrees"]


class NearestTrees:
    """Makes trees of shortest paths, in which every switch sends its sum to the ps.

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
    """

    def __init__(self, topology: Topology):
        if topology.ps is None:
            raise TopologyError("this scheme needs a ps")
        self.topology, self.ps = topology, topology.ps
        arcs, no_price = Arcs(topology), lambda arc: 0.0
        self.sites: dict[str, Site] = {site.at: site for site in find_sites(topology)}
        self._toward = {place: ShortestPaths(place, arcs.toward(place), no_price) for place in (*self.sites, self.ps)}
        self._back = ShortestPaths(self.ps, [(to, at) for at, to in arcs.down], no_price)
        self.start = {worker: group.at for group in topology.groups() for worker in group.workers}

    def tree(self, homes: Mapping[str, str]) -> Tree:
        """Return the tree in which each worker is summed at its home, at the highest rate."""
        up, down = {}, {}
        for worker, home in homes.items():
            at = self.start[worker]
            own = () if at == worker else (worker,)
            up[worker] = (*own, *self._toward[home].path(at))
            if self.topology.job.unicast:
                down[worker] = (*self._back.path(at)[::-1], *own)
        parents = {home: self.ps for home in homes.values() if home != self.ps}
        up |= {switch: self._toward[self.ps].path(switch) for switch in parents}
        return at_full_rate(
            self.topology, Tree(rate_gbps=0.0, root=self.ps, homes=dict(homes), parents=parents, up=up, down=down)
        )

    def has_room(self, homes: Mapping[str, str]) -> bool:
        """Return True if no switch has more members than it can have."""
        chosen = list(homes.values())
        return all(
            chosen.count(home) <= (self.sites[home].members or INFINITY) for home in set(chosen) & self.sites.keys()
        )

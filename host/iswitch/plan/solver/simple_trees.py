"""Trees to start a search from: each switch sums its own workers, and one switch sums all workers."""

from collections.abc import Mapping, Sequence

from iswitch.plan.solver.arcs import can_sum_at
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Tree, at_full_rate
from iswitch.plan.topology.topology import Topology

__all__ = ["make_simple_trees", "make_stars"]


def make_simple_trees(
    topology: Topology, sites: Sequence[Site], levels: int | None, adjacent: bool, roots_max: int
) -> list[Tree]:
    """Return trees at their full rate: each worker's own switch sums it, or the root does.

    Parameters
    ----------
    topology : Topology
        The topology.
    sites : sequence of Site
        Places where sums can be formed, beside the ps.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    roots_max : int
        Most switches that become roots if there is no ps, those of the highest capacity.
    """
    fastest_first = [site.at for site in sorted(sites, key=lambda site: -site.capacity_gbps)]
    table, known = PathTable.of(topology), {site.at for site in sites}
    found = []
    for root in [topology.ps] if topology.ps else fastest_first[:roots_max]:
        own, direct = {}, {}
        for group in topology.groups():
            near = group.at if group.at in known else root
            for worker in group.workers:
                own[worker] = near if can_sum_at(group, near, adjacent) else root
                direct[worker] = root
        for homes in (own, direct):
            if tree := _tree(topology, table, root, homes, adjacent):
                found.append(tree)
    return _with_room(topology, sites, found)


def make_stars(topology: Topology, sites: Sequence[Site], adjacent: bool, clock: Clock) -> list[Tree]:
    """Return for each site the tree in which it alone sums all workers, at the full rate; those made in time."""
    table, found = PathTable.of(topology), []
    if adjacent:
        return []
    for site in sorted(sites, key=lambda site: -site.capacity_gbps):
        if not clock.left:
            break
        homes = dict.fromkeys(topology.workers, site.at)
        if tree := _tree(topology, table, topology.ps or site.at, homes, adjacent):
            found.append(tree)
    return _with_room(topology, sites, found)


def _with_room(topology: Topology, sites: Sequence[Site], trees: Sequence[Tree]) -> list[Tree]:
    """Return the trees that have a rate, and no more members at any site than it can have."""
    most = {site.at: site.members for site in sites if site.members is not None}
    return [
        tree
        for tree in trees
        if tree.rate_gbps and all(len(tree.members(at)) + len(tree.children(at)) <= limit for at, limit in most.items())
    ]


def _tree(topology: Topology, table: PathTable, root: str, homes: Mapping[str, str], adjacent: bool) -> Tree | None:
    """Return the tree with these homes, whose sums go to the root, over shortest paths spread by their number."""
    up: dict[str, tuple[str, ...]] = {}
    down: dict[str, tuple[str, ...]] = {}
    parents = {home: root for home in homes.values() if home != root}
    streams = [(group.at, worker, homes[worker]) for group in topology.groups() for worker in group.workers]
    streams += [(switch, switch, root) for switch in parents]
    for number, (start, child, end) in enumerate(streams):
        shortest = table.shortest(start, end)
        if not shortest or (adjacent and len(shortest[0]) > 2):
            return None
        path = shortest[number % len(shortest)]
        up[child] = path if start == child else (child, *path)
        if topology.job.unicast and child in homes:
            if not (back := table.shortest(start, root)):
                return None
            down[child] = back[0][::-1] if start == child else (*back[0][::-1], child)
    tree = Tree(rate_gbps=0.0, root=root, homes=dict(homes), parents=parents, up=up, down=down)
    return at_full_rate(topology, tree)

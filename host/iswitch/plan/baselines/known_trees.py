"""The trees of baselines as trees to start a search from.

Baselines need a ps. If the topology has none, a worker is the ps. The switch of that worker can then sum what would go
to it, and be the root.
"""

from collections.abc import Sequence

from iswitch.plan.baselines.grid import plan_like_grid
from iswitch.plan.baselines.systems import (
    plan_like_atp,
    plan_like_switchml,
    plan_without_aggregation,
    with_parameter_server,
)
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.tree import Tree, at_full_rate
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["as_known_trees", "trees_of_baselines"]


def trees_of_baselines(topology: Topology, clock: Clock) -> list[Tree]:
    """Return the trees of all baselines that are found in time, as trees of this topology."""
    schemes = [plan_without_aggregation, plan_like_atp, plan_like_switchml, plan_like_grid]
    found: list[Tree] = []
    for number, scheme in enumerate(schemes):
        if not clock.left:
            break
        try:
            planned = with_parameter_server(topology)
            trees = scheme(planned, time_s=clock.part(1 / (len(schemes) - number)).time_s).trees
        except TopologyError:
            continue  # this baseline has no plan here
        found += as_known_trees(topology, planned, trees)
    return found


def as_known_trees(topology: Topology, planned: Topology, trees: Sequence[Tree]) -> list[Tree]:
    """Return trees of the topology `planned`, which has a ps, as trees of a topology that may have none.

    If it has none, the switch of the ps becomes the root. Trees that its capacities do not allow are left out.
    """
    if topology.ps or planned.ps is None:
        return list(trees)
    near = list(topology.graph[planned.ps])
    if len(near) != 1 or near[0] not in topology.aggregators:
        return []
    most = {site.at: site.members for site in find_sites(topology) if site.members is not None}
    moved = (at_full_rate(topology, _rerooted(topology, tree, near[0])) for tree in trees)
    return [
        tree
        for tree in moved
        if tree.rate_gbps and all(len(tree.members(at)) + len(tree.children(at)) <= limit for at, limit in most.items())
    ]


def _rerooted(topology: Topology, tree: Tree, root: str) -> Tree:
    """Return a tree whose sums end at the only switch beside its root, which becomes a worker."""
    worker = tree.root
    parents = {site: root if parent == worker else parent for site, parent in tree.parents.items() if site != root}
    homes = {worker: root} | {each: root if home == worker else home for each, home in tree.homes.items()}
    up: dict[str, tuple[str, ...]] = {worker: (worker, root)}
    for child, path in tree.up.items():
        if child != root:
            up[child] = tuple(node for node in path if node != worker)
    down = {each: tuple(node for node in path if node != worker) for each, path in tree.down.items()}
    if topology.job.unicast:
        down[worker] = (root, worker)
    return Tree(
        rate_gbps=0.0,
        root=root,
        homes={each: homes[each] for each in topology.workers},
        parents=parents,
        up={each: up[each] for each in (*topology.workers, *parents)},
        down={each: down[each] for each in topology.workers} if down else {},
    )

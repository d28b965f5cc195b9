"""Roles of switches: which switch changes from one plan to the next, and running trees on the cables that are left."""

from collections.abc import Sequence
from itertools import pairwise

from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.tree import Tree, at_full_rate
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["Role", "changed_switches", "in_running_order", "repair", "roles"]

Role = tuple[str | None, frozenset[str]]
"""The parent of a switch in a tree, None for the root, and the workers and switches that it sums."""


def roles(tree: Tree) -> dict[str, Role]:
    """Return the role of each node that sums."""
    return {
        node: (tree.parents.get(node), frozenset([*tree.members(node), *tree.children(node)]))
        for node in tree.summing_nodes
    }


def changed_switches(topology: Topology, running: Sequence[Tree], trees: Sequence[Tree]) -> list[str]:
    """Return the switches whose role differs in any tree, by name. Tree k is compared with tree k.

    Parameters
    ----------
    topology : Topology
        The topology as it is now. Switches that it no longer has do not count.
    running, trees : sequence of Tree
        The trees before and after.
    """
    changed: set[str] = set()
    for number in range(max(len(running), len(trees))):
        before, after = (roles(each[number]) if number < len(each) else {} for each in (running, trees))
        changed |= {node for node in before.keys() | after.keys() if before.get(node) != after.get(node)}
    return sorted(changed & set(topology.switches), key=natural_key)


def in_running_order(running: Sequence[Tree], trees: Sequence[Tree]) -> tuple[Tree, ...]:
    """Return the trees so that each one whose roles a running tree has comes at its place, if there are so many."""
    left, places = list(trees), list[Tree | None]([None] * len(trees))
    for number, before in enumerate(running[: len(trees)]):
        same = next((tree for tree in left if roles(tree) == roles(before)), None)
        if same is not None:
            places[number] = same
            left.remove(same)
    return tuple(tree or left.pop(0) for tree in places)


def repair(topology: Topology, tree: Tree, *, adjacent: bool) -> Tree | None:
    """Return a running tree with the same roles, at its full rate.

    Streams whose cables are lost take the shortest paths that are left.

    Parameters
    ----------
    topology : Topology
        The topology as it is now.
    tree : Tree
        The running tree.
    adjacent : bool
        Let each switch sum only its neighbours.

    Returns
    -------
    Tree or None
        None if the roles are not possible any more.
    """
    nodes = set(topology.graph)
    summing = set(tree.summing_nodes) - {topology.ps}
    if set(tree.homes) != set(topology.workers) or not summing <= set(topology.aggregators):
        return None
    if topology.ps and tree.root != topology.ps:
        return None
    if any(
        len(role[1]) > topology.graph.nodes[node].get("members", len(role[1]))
        for node, role in roles(tree).items()
        if node != topology.ps
    ):
        return None
    up: dict[str, tuple[str, ...]] = {}
    for child, end in (*tree.homes.items(), *tree.parents.items()):
        path = tuple(tree.up.get(child, ()))
        is_whole = path[:1] == (child,) and path[-1] == end and _is_whole(topology, path, nodes)
        found = path if is_whole else _shortest(topology, child, end)
        if found is None or (adjacent and len(found) > 2):
            return None
        up[child] = found
    down: dict[str, tuple[str, ...]] = {}
    for worker in topology.workers if topology.job.unicast else ():
        path = tuple(tree.down.get(worker, ()))
        is_whole = path[:1] == (tree.root,) and path[-1] == worker and _is_whole(topology, path, nodes)
        back = path if is_whole else (_shortest(topology, worker, tree.root) or ())[::-1]
        if not back:
            return None
        down[worker] = back
    repaired = Tree(rate_gbps=0.0, root=tree.root, homes=tree.homes, parents=tree.parents, up=up, down=down)
    found_tree = at_full_rate(topology, repaired)
    return found_tree if found_tree.rate_gbps else None


def _is_whole(topology: Topology, path: tuple[str, ...], nodes: set[str]) -> bool:
    """Return True if a path leads through switches over cables with free bandwidth."""
    return (
        nodes.issuperset(path)
        and set(path[1:-1]) <= set(topology.switches)
        and all(topology.graph.has_edge(*hop) and topology.free_gbps(*hop) for hop in pairwise(path))
    )


def _shortest(topology: Topology, start: str, end: str) -> tuple[str, ...] | None:
    table = PathTable.of(topology)
    own: tuple[str, ...] = ()
    if start in topology.workers and start not in table.arcs.multi_homed:
        own, start = (start,), next(iter(topology.graph[start]))
    return next(((*own, *path) for path in table.shortest(start, end)), None)

"""All trees of a small fabric, for oracles: three workers at the triangle of the seed example."""

from collections.abc import Iterator
from itertools import product

from iswitch.plan.solver.tree import Resource, Tree, loads
from iswitch.plan.topology.generators import seed_example
from iswitch.plan.topology.topology import Topology

__all__ = ["all_trees", "triangle", "undominated_trees"]

RING = {"S1": ("S2", "S3"), "S2": ("S1", "S3"), "S3": ("S1", "S2")}


def triangle(return_path: str, capacity_gbps: float, server_gbps: float, last_gbps: float) -> Topology:
    """Return the fabric.

    Parameters
    ----------
    return_path : str
        How results return, see `Job`.
    capacity_gbps : float
        Gb/s that each switch can sum.
    server_gbps, last_gbps : float
        Gb/s of the ps's cable, and of the cable between S2 and S3.
    """
    graph = seed_example(capacity_gbps=capacity_gbps, return_path=return_path).graph.copy()
    graph.remove_nodes_from(["W3", "W4", "W6", "W7", "W8"])
    graph.edges["PS", "S3"]["bw_gbps"] = float(server_gbps)
    graph.edges["S2", "S3"]["bw_gbps"] = float(last_gbps)
    for worker in ("W1", "W2", "W5"):
        (switch,) = graph[worker]
        graph.edges[worker, switch]["bw_gbps"] = 10.0
    return Topology(graph)


def all_trees(topology: Topology) -> Iterator[Tree]:
    """Yield all trees of one level of the triangle: every home of every worker, and both paths of every stream."""
    workers = topology.workers
    at = {worker: next(iter(topology.graph[worker])) for worker in workers}
    choices = [
        [
            (home, (worker, *path, *(("PS",) if home == "PS" else ())))
            for home in (*RING, "PS")
            for path in _paths_between(at[worker], "S3" if home == "PS" else home)
        ]
        for worker in workers
    ]
    for choice in product(*choices):
        homes = {worker: home for worker, (home, _) in zip(workers, choice)}
        used = sorted({home for home in homes.values() if home != "PS"})
        for above in product(*([(*path, "PS") for path in _paths_between(switch, "S3")] for switch in used)):
            up = {worker: path for worker, (_, path) in zip(workers, choice)} | dict(zip(used, above))
            yield Tree(rate_gbps=1.0, root="PS", homes=homes, parents=dict.fromkeys(used, "PS"), up=up)


def undominated_trees(topology: Topology) -> list[dict[Resource, float]]:
    """Return the loads of trees for 1 Gb/s of rate, without those of trees that load nothing less than another one."""
    found: list[dict[Resource, float]] = []
    for load in sorted((loads(topology, tree) for tree in all_trees(topology)), key=lambda load: sum(load.values())):
        if not any(all(load.get(at, 0.0) >= size - 1e-12 for at, size in less.items()) for less in found):
            found.append(load)
    return found


def _paths_between(a: str, b: str) -> list[list[str]]:
    return [[a]] if a == b else [[a, b], [a, *(set(RING) - {a, b}), b]]

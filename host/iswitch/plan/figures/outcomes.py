"""What each scheme reaches on a topology: the rate of the workers, and what switches and ps sum."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from iswitch.plan.baselines.grid import plan_like_grid, solve_relaxation
from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.baselines.systems import plan_like_atp
from iswitch.plan.figures.published import ATP, GERYON, GRID, SWITCHML
from iswitch.plan.schemes import make_plan
from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.tree import Tree
from iswitch.plan.topology.topology import Topology

__all__ = ["LEVEL", "PROGRAM", "TREE", "Outcome", "run_schemes"]

PROGRAM, LEVEL, TREE = "GRID's program alone", "iswitch, one level", "iswitch, several levels"
"""The linear program's promise, which ignores cables, and the two kinds of plans that are compared."""


class Outcome(NamedTuple):
    """The Gb/s of each worker, of all gradients that switches sum, and of all streams that the ps takes."""

    rate_gbps: float
    switches_gbps: float
    server_gbps: float


def run_schemes(topology: Topology, *, seed: int = 1, time_s: float = 10.0) -> dict[str, Outcome]:
    """Return what each scheme reaches.

    As in the paper, ATP and SwitchML sum a gradient at the first aggregating switch of a path that is given. With ATP
    the rest goes to the ps unsummed. With SwitchML the switch sums everything.

    Parameters
    ----------
    topology : Topology
        A topology with a ps.
    seed : int
        Seed that chooses each worker's path among equally short ones.
    time_s : float
        Time limit of GRID, and of each kind of plan, in seconds.
    """
    nearest = NearestTrees(topology)
    first = find_first_aggregators(topology, nearest, seed)
    direct = dict.fromkeys(topology.workers, nearest.ps)
    grid = plan_like_grid(topology, time_s=time_s).trees
    atp = plan_like_atp(topology, homes=first, time_s=time_s).trees
    switchml = nearest.trees(direct | first)
    level = make_plan(topology, "levels", time_s=time_s, start=[*grid, *switchml]).trees
    tree = make_plan(topology, "trees", time_s=time_s, start=[*level, *grid, *switchml]).trees
    promised = solve_relaxation(nearest, time_s)[0]
    return {
        GRID: measure(grid),
        ATP: measure(atp),
        SWITCHML: measure(switchml),
        GERYON: measure(nearest.trees(direct)),
        PROGRAM: Outcome(promised, 0.0, 0.0),
        LEVEL: measure(level),
        TREE: measure(tree),
    }


def find_first_aggregators(topology: Topology, nearest: NearestTrees, seed: int) -> dict[str, str]:
    """Return for each worker the first switch that aggregates on its path; workers without one are missing."""
    rng, table = random.Random(seed), PathTable.of(topology)
    found = {}
    for worker in topology.workers:
        path = rng.choice(table.shortest(nearest.start[worker], nearest.ps))
        if sites := [node for node in path if node in nearest.sites]:
            found[worker] = sites[0]
    return found


def measure(trees: Sequence[Tree]) -> Outcome:
    """Return what trees reach together."""
    rate = switches = server = 0.0
    for tree in trees:
        direct = sum(home == tree.root for home in tree.homes.values())
        rate += tree.rate_gbps
        switches += tree.rate_gbps * (len(tree.homes) - direct)
        server += tree.rate_gbps * (direct + sum(parent == tree.root for parent in tree.parents.values()))
    return Outcome(rate, switches, server)

"""Trees made by filling capacities: legal by the independent check, and as fast as the bound on fabrics of racks."""

from pathlib import Path

import pytest

from iswitch.plan.check import check_plan
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.filled_trees import fastest_filled_tree, fill
from iswitch.plan.solver.relaxation import Relaxation
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.streams import Streams
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import TopologyError
from iswitch.plan.topology.yaml_file import parse_yaml
from sim.bench.fabrics import random_topology

ROOT = Path(__file__).parents[4]
SAME = 1e-6


def racks(count):
    text = (ROOT / "docs/plan_12racks.yaml").read_text(encoding="utf-8")
    return parse_yaml(text.replace("count: 12", f"count: {count}"))


def streams_of(topology, levels):
    root = topology.ps or topology.aggregators[0]
    return Streams(topology, find_sites(topology), levels=levels, adjacent=False, root=root)


@pytest.mark.parametrize("levels", [1, None])
def test_filled_trees_are_legal_and_not_above_the_optimum(levels):
    """The optimum is the integer program's; the loads are the independent check's."""
    made = 0
    for seed in range(16):
        topology = random_topology(seed)
        try:
            best = plan_single_tree(topology, levels=levels).rate_gbps
        except TopologyError:
            continue
        for part in (1.0, 0.8, 0.5, 0.2):
            if tree := fill(streams_of(topology, levels), 1 / (part * best)):
                made += 1
                plan = Plan(scheme="filled", trees=(tree,), bound_gbps=best)
                assert check_plan(node_link(topology), plan.to_dict(), levels=levels)[1] == []
                assert part * best * (1 - SAME) <= tree.rate_gbps <= best * (1 + SAME)
    assert made > 20


@pytest.mark.parametrize(("count", "levels"), [(20, 1), (24, 1), (48, 1), (24, None)])
def test_trees_of_racks_are_as_fast_as_the_bound(count, levels):
    topology = racks(count)
    relaxation, clock = Relaxation(topology, find_sites(topology), levels), Clock(60)
    low = relaxation.least_t(clock)
    low = relaxation.least_t_of_one_tree(low, 6 * low, clock)
    tree = fastest_filled_tree(streams_of(topology, levels), low, 6 * low, clock)
    assert tree.rate_gbps * low >= 1 - SAME
    plan = Plan(scheme="filled", trees=(tree,), bound_gbps=1 / low)
    assert check_plan(node_link(topology), plan.to_dict(), levels=levels)[1] == []


def test_no_tree_is_made_above_the_bound():
    """With one level 20 racks reach 100 / 17 Gb/s, which the integer program proves."""
    assert fill(streams_of(racks(20), 1), 0.999 * 17 / 100) is None


def test_switches_that_sum_nothing_are_in_no_tree():
    """At a fifth of the best rate the server has room for the sums of all racks, and the spines are not needed."""
    tree = fill(streams_of(racks(3), None), 0.5)
    assert set(tree.parents) == {"leaf1", "leaf2", "leaf3"}
    assert all(tree.members(site) or tree.children(site) for site in tree.parents)

"""Five hundred random fabrics: every plan is proved and passes the check. More general schemes are not slower."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iswitch.plan.check import check_plan
from iswitch.plan.schemes import plan_baselines
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import TopologyError
from sim.bench.fabrics import random_topology

PARTS, PART = 10, 50
SAME = 1e-6


def planned_or_full(topology, levels):
    """Return the plan, or None if no switch can be the root of so many members. With a ps there is always a plan."""
    try:
        return plan_single_tree(topology, levels=levels)
    except TopologyError as error:
        if topology.ps is not None or "no tree reaches all workers" not in str(error):
            raise
        return None


def holds(topology, plan, levels):
    assert check_plan(node_link(topology), plan.to_dict(), levels=levels)[1] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_plans_hold_and_are_proved(part):
    planned = 0
    for seed in range(part * PART, (part + 1) * PART):
        topology = random_topology(seed)
        levels = 1 if seed % 2 else None
        plan = planned_or_full(topology, levels)
        if plan is None:
            continue
        planned += 1
        assert plan.gap < SAME
        holds(topology, plan, levels)
    assert planned > PART * 0.9


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.sampled_from([1, None]))
def test_any_small_fabrics_plan_is_proved_and_holds(rng, levels):
    """A failure shrinks to few switches and workers."""
    topology = random_topology(rng, switches=3, workers=4)
    if (plan := planned_or_full(topology, levels)) is not None:
        assert plan.gap < SAME
        holds(topology, plan, levels)


@pytest.mark.parametrize("part", range(PARTS))
def test_more_general_schemes_are_not_slower(part):
    for seed in range(1000 + part * 3, 1000 + part * 3 + 3):
        topology = random_topology(seed)
        level, tree = planned_or_full(topology, 1), planned_or_full(topology, None)
        if level is None or tree is None:
            continue
        levels, trees = plan_several_trees(topology, start=level.trees), plan_several_trees(topology, levels=None)
        for plan, most in ((level, 1), (tree, None), (levels, 1), (trees, None)):
            assert plan.gap < SAME
            holds(topology, plan, most)
        assert level.rate_gbps <= tree.rate_gbps * (1 + SAME) and level.rate_gbps <= levels.rate_gbps * (1 + SAME)
        assert tree.rate_gbps <= trees.rate_gbps * (1 + SAME) and levels.rate_gbps <= trees.rate_gbps * (1 + SAME)
        for row in plan_baselines(topology):
            assert row.plan or row.reason in (
                "no switch has room for the sums of all racks (members)",
                "a switch has no room for all of its workers (members)",
            )
            # SwitchML sums the sums of racks once more.
            most, containing = (None, trees) if row.scheme == "SwitchML-like" else (1, levels)
            if row.plan:
                holds(row.topology, row.plan, most)
            if row.plan and topology.ps:
                assert row.plan.rate_gbps <= containing.rate_gbps * (1 + SAME), row.scheme

"""The example of the paper: 1, 2.4375 and 3 Gb/s, with the load of every cable."""

import pytest

from iswitch.plan.baselines.grid import plan_like_grid, solve_relaxation
from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.baselines.systems import plan_like_atp, plan_without_aggregation
from iswitch.plan.check import check_plan
from iswitch.plan.schemes import make_plan
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.generators import seed_example
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology


def loads(topology, plan):
    found, complaints = check_plan(node_link(topology), plan.to_dict())
    assert complaints == []
    return {name: pytest.approx(load) for name, load in found.items()}


def test_without_aggregation_six_workers_share_two_cables():
    topology = seed_example()
    plan = plan_without_aggregation(topology)
    found = loads(topology, plan)
    assert plan.rate_gbps == pytest.approx(1) and plan.gap < 1e-6
    assert (found["S1>S3"], found["S2>S3"], found["S3>PS"]) == (3, 3, 8)
    assert all(found[f"W{worker}>S{switch}"] == 1 for worker, switch in zip(range(1, 9), (1, 1, 1, 1, 2, 2, 3, 3)))


def test_tor_only_sums_what_each_switch_can_and_sends_the_rest_unsummed():
    topology = seed_example()
    plan = plan_like_atp(topology)
    found = loads(topology, plan)
    assert plan.rate_gbps == pytest.approx(2.4375)
    assert found["sum S1"] == 9 and found["S1>S3"] == 3 and found["S2>S3"] == 2.4375
    assert found["sum S2"] == found["sum S3"] == 2 * 2.4375
    assert found["S3>PS"] == found["sum PS"] == 2.25 + 4 * 0.1875 + 2 * 2.4375
    assert "S1>S2" not in found


@pytest.mark.parametrize("returning", ["multicast", "none"])
def test_moving_one_worker_to_another_switch_makes_all_as_fast_as_their_cables(returning):
    topology = seed_example(return_path=returning)
    plan = plan_single_tree(topology)
    tree, found = plan.trees[0], loads(topology, plan)
    assert plan.rate_gbps == pytest.approx(3) and plan.gap < 1e-6
    assert tree.homes == {
        "W1": "S1",
        "W2": "S1",
        "W3": "S1",
        "W4": "S2",
        "W5": "S2",
        "W6": "S2",
        "W7": "S3",
        "W8": "S3",
    }
    expected = {f"W{worker}>S{switch}": 3 for worker, switch in zip(range(1, 9), (1, 1, 1, 1, 2, 2, 3, 3))} | {
        "S1>S3": 3,
        "S1>S2": 3,
        "S2>S3": 3,
        "S3>PS": 9,
        "sum S1": 9,
        "sum S2": 9,
        "sum S3": 6,
        "sum PS": 9,
        "slots S1": 3,
        "slots S2": 3,
        "slots S3": 3,
    }
    if returning == "multicast":
        expected |= {">".join(reversed(name.split(">"))): load for name, load in expected.items() if ">" in name}
    assert found == expected


def test_unicast_results_undo_the_gain():
    topology = seed_example(return_path="unicast")
    plans = [
        plan_single_tree(topology),
        plan_single_tree(topology, levels=None),
        plan_several_trees(topology),
        plan_several_trees(topology, levels=None),
    ]
    for plan in plans:
        assert plan.rate_gbps == pytest.approx(1)
        assert plan.gap < 1e-6
        loads(topology, plan)


# As other programs and brute force found: no aggregation, ATP-like, one tree, several levels, several trees; without
# results
VARIANTS = {
    "seed": ({}, 1.0, 2.4375, 3.0, 3.0, 3.0),
    "noL2": ({"without": "L2"}, 0.75, 2.4375, 2.25, 2.25, 2.4375),
    "cap6": ({"capacity_gbps": 6}, 1.0, 1.875, 2.0, 2.0, 2.5227),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name):
    settings, *expected = VARIANTS[name]
    topology = seed_example(return_path="none", **settings)
    plans = [
        plan_without_aggregation(topology),
        plan_like_atp(topology),
        plan_single_tree(topology),
        plan_single_tree(topology, levels=None),
        plan_several_trees(topology),
    ]
    for plan, rate in zip(plans, expected):
        assert plan.rate_gbps == pytest.approx(rate, abs=5e-5), plan.scheme
        assert loads(topology, plan)
    assert plans[-1].gap < 1e-6


def test_results_cost_some_of_the_gain_of_several_trees():
    """The rate would be 2.5227 if results had cables of their own."""
    plan = plan_several_trees(seed_example(capacity_gbps=6))
    assert plan.rate_gbps == pytest.approx(2.4868, abs=5e-5) and plan.gap < 1e-6


def test_grids_relaxation_ignores_links_and_promises_the_same_rate_for_every_capacity():
    """It promises 3, the rate of a cable. With cables of 9 Gb/s it promises 4.078."""
    assert solve_relaxation(NearestTrees(seed_example()))[0] == pytest.approx(3)
    assert solve_relaxation(NearestTrees(seed_example(capacity_gbps=6)))[0] == pytest.approx(3)
    graph = seed_example().graph.copy()
    for worker in range(1, 9):
        (switch,) = graph[f"W{worker}"]
        graph.edges[f"W{worker}", switch]["bw_gbps"] = 9.0
    assert solve_relaxation(NearestTrees(Topology(graph)))[0] == pytest.approx(4.078, abs=5e-4)


def test_repaired_roundings_of_grid_reach_the_best_tree():
    for settings, best in (({}, 3.0), ({"without": "L2"}, 2.25), ({"capacity_gbps": 6}, 2.0)):
        topology = seed_example(**settings)
        plan = plan_like_grid(topology)
        loads(topology, plan)
        assert plan.rate_gbps == pytest.approx(best)
        assert plan.rate_gbps == plan_like_grid(topology).rate_gbps


def test_partial_sums_of_eight_bytes_halve_the_rate_between_switches():
    for kind, rate in (("level", 1.5), ("levels", 2.0), ("trees", 2.25)):
        topology = seed_example(uplink_bytes_per_element=8)
        plan = make_plan(topology, kind)
        assert plan.rate_gbps == pytest.approx(rate)
        loads(topology, plan)


def test_atp_with_each_own_switch_given_is_atp():
    topology = seed_example()
    own = {worker: next(iter(topology.graph[worker])) for worker in topology.workers}
    assert plan_like_atp(topology, homes=own).rate_gbps == pytest.approx(plan_like_atp(topology).rate_gbps)
    assert plan_like_atp(topology, homes={}).rate_gbps == pytest.approx(0.75)  # four gradients share L1, unsummed

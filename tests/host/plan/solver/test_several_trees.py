"""Several trees, compared with the linear program over all trees."""

import random

import pytest

from iswitch.plan.check import check_plan
from iswitch.plan.solver.linear_program import LinearProgram
from iswitch.plan.solver.pricing import PricingProblem
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.tree import Resource, at_full_rate, capacities, loads
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology
from sim.bench.triangle import all_trees, triangle


@pytest.fixture(
    scope="module",
    params=[
        ("multicast", 4, 4, 3),
        ("none", 4, 4, 3),
        ("none", 3.5, 5, 2.5),
        ("multicast", 5, 6, 2),
        ("none", 6, 3.7, 1.9),
    ],
)
def small(request):
    return triangle(*request.param)


def test_no_packing_of_all_trees_is_faster(small):
    agrees_with_the_packing_of_all_trees(small)


@pytest.mark.parametrize("seed", range(6))
def test_no_packing_of_all_trees_over_unlike_rates_is_faster(seed):
    chance = random.Random(seed)
    graph = triangle("multicast" if seed % 2 else "none", chance.choice([3, 5, 9]), 9, 3).graph.copy()
    for a, b in graph.edges:
        graph.edges[a, b].update(sender=chance.choice([a, b]), sender_gbps=float(chance.choice([1, 2, 4, 7])))
    agrees_with_the_packing_of_all_trees(Topology(graph))


def agrees_with_the_packing_of_all_trees(topology):
    room, rows, program = capacities(topology) | cable_rates(topology), {}, LinearProgram()
    for tree in all_trees(topology):
        share = program.add_variable(cost=-1.0)
        for resource, load in loads(topology, tree).items():
            if resource in room:
                rows.setdefault(resource, {})[share] = load
    for resource, terms in rows.items():
        program.add_row(terms, 0, room[resource])
    plan = plan_several_trees(topology)
    assert plan.rate_gbps == pytest.approx(-program.solve().objective, rel=1e-6)
    assert plan.gap < 1e-6


def cable_rates(topology):
    return {
        Resource("link", at, to): cable["sender_gbps"] if cable.get("sender") == at else cable["bw_gbps"]
        for a, b, cable in topology.graph.edges(data=True)
        for at, to in ((a, b), (b, a))
    }


def test_the_cheapest_tree_is_the_cheapest(small):
    room = capacities(small)
    for step in range(5):
        prices = {
            resource: (1 + (7 * number + 3 * step) % 11) / gbps
            for number, (resource, gbps) in enumerate(sorted(room.items()))
        }
        cost = lambda tree: sum(prices.get(resource, 0.0) * load for resource, load in loads(small, tree).items())
        tree, bound = PricingProblem(small, find_sites(small), 1).cheapest_tree(prices)
        assert cost(tree) == pytest.approx(min(map(cost, all_trees(small)))) == bound


def test_several_trees_use_both_spines():
    """The cables of one spine carry half of the workers' gradients."""
    topology = Topology.of(
        leaf_spine(2, 2, 2, nic_gbps=10, uplink_gbps=10),
        aggregates={"leaf1": 100, "leaf2": 100, "spine1": 100, "spine2": 100},
    )
    topology = topology.with_job(overhead_bytes=0)
    plan = plan_several_trees(topology, levels=None)
    assert plan.rate_gbps == pytest.approx(10) and plan.gap < 1e-6 and len(plan.trees) > 1
    assert check_plan(node_link(topology), plan.to_dict())[1] == []
    assert {"spine1", "spine2"} <= {node for tree in plan.trees for path in tree.up.values() for node in path}


def test_one_tree_suffices_if_it_is_as_fast_as_the_cables():
    topology = seed_example()
    start = [at_full_rate(topology, tree) for tree in plan_several_trees(topology).trees]
    assert plan_several_trees(topology, start=start).rate_gbps == pytest.approx(3)


def test_the_time_limit_leaves_a_plan_and_a_bound():
    topology = seed_example(capacity_gbps=6)
    plan = plan_several_trees(topology, time_s=1e-9)
    assert check_plan(node_link(topology), plan.to_dict())[1] == []
    assert plan.rate_gbps <= plan_several_trees(topology).rate_gbps * (1 + 1e-6) <= plan.bound_gbps * (1 + 2e-6)

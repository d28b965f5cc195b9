import pytest

from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.shadow_prices import bottlenecks, find_shadow_prices
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.tree import Resource, at_full_rate, capacities
from iswitch.plan.topology.generators import seed_example
from iswitch.plan.topology.topology import Topology


def more(topology, resource, gbps):
    """Return the topology with more of one resource."""
    graph = topology.graph.copy()
    if resource.kind == "link":
        pytest.fail("a cable has more in both directions")
    graph.nodes[resource.at][f"{resource.kind}_gbps"] += gbps
    return Topology(graph)


def test_the_shadow_price_is_the_gain_from_more_capacity():
    """The only bottleneck is S1, which sums four gradients."""
    topology = seed_example(without="L2", capacity_gbps=8)
    plan = plan_single_tree(topology)
    resource = Resource("capacity", "S1")
    assert plan.shadow_prices == {resource: pytest.approx(0.25)}
    faster = at_full_rate(more(topology, resource, 0.5), plan.trees[0])
    assert faster.rate_gbps - plan.rate_gbps == pytest.approx(0.5 * 0.25)


def test_bottlenecks_that_limit_together_have_the_price_zero():
    plan = plan_single_tree(seed_example())
    assert Resource("link", "S1", "S3") in plan.shadow_prices and set(plan.shadow_prices.values()) == {0.0}
    assert set(plan.shadow_prices) == set(bottlenecks(seed_example(), plan.trees))


def test_shadow_prices_of_several_trees_are_lower_bounds_of_the_gain():
    topology = seed_example(capacity_gbps=6)
    plan = plan_several_trees(topology)
    priced = {
        resource: price for resource, price in plan.shadow_prices.items() if resource.kind == "capacity" and price
    }
    assert priced
    for resource, price in priced.items():
        later = plan_several_trees(more(topology, resource, 0.01), start=plan.trees)
        assert later.rate_gbps - plan.rate_gbps >= 0.01 * price * (1 - 1e-3)


def test_the_rate_scales_with_all_capacities():
    """If all capacities double, so does the rate."""
    topology = seed_example(capacity_gbps=6)
    plan = plan_several_trees(topology)
    graph = topology.graph.copy()
    for *_, data in graph.edges(data=True):
        data["bw_gbps"] *= 2
    for switch in ("S1", "S2", "S3"):
        graph.nodes[switch]["capacity_gbps"] *= 2
    assert plan_several_trees(Topology(graph)).rate_gbps == pytest.approx(2 * plan.rate_gbps, rel=1e-6)


def test_no_trees_have_no_shadow_prices():
    topology = seed_example()
    assert find_shadow_prices(topology, ()) == {} and capacities(topology)

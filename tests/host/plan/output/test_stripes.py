import pytest

from iswitch.plan.baselines.systems import plan_like_atp
from iswitch.plan.check import check_plan
from iswitch.plan.output.stripes import round_to_stripes
from iswitch.plan.schemes import make_plan
from iswitch.plan.topology.generators import seed_example
from iswitch.plan.topology.graph_file import node_link
from sim.bench.fabrics import random_topology


@pytest.mark.parametrize(
    "topology",
    [seed_example(capacity_gbps=6), seed_example(uplink_bytes_per_element=8), *map(random_topology, (1, 2, 3, 6))],
    ids=["cap6", "8 bytes", "1", "2", "3", "6"],
)
def test_whole_fragments_cost_at_most_one_percent_and_fit(topology):
    plan = make_plan(topology, "levels")
    found = round_to_stripes(topology, plan)
    assert sum(found.fragments) == found.of and found.rate_gbps >= 0.99 * plan.rate_gbps
    data = plan.to_dict() | {"rate_gbps": found.rate_gbps}
    for tree, part in zip(data["trees"], found.fragments):
        tree["rate_gbps"] = found.rate_gbps * part / found.of
    data["trees"] = [tree for tree in data["trees"] if tree["rate_gbps"]]
    assert check_plan(node_link(topology), data, levels=1)[1] == []


def test_a_single_tree_has_every_fragment():
    topology = seed_example()
    assert round_to_stripes(topology, make_plan(topology, "level")) == (1, (1,), pytest.approx(3))


def test_shares_of_twelve_to_one_need_a_pattern_of_sixty_four():
    """Rates 2.25 and 0.1875. With 15 of 16 or 30 of 32 on the faster tree, S1 allows 2.4 = 9 / (4 x 15/16), which costs
    more than 1 %."""
    topology = seed_example()
    found = round_to_stripes(topology, plan_like_atp(topology))
    assert found[:2] == (64, (59, 5))
    assert found.rate_gbps == pytest.approx(3 / (59 / 64 + 4 * 5 / 64))

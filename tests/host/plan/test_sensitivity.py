import pytest

from iswitch.plan.schemes import make_plan
from iswitch.plan.sensitivity import make_upgrade, remove, reserve
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.graph_file import to_json
from iswitch.plan.topology.topology import Topology, TopologyError


def test_a_removed_cable_gives_the_topology_without_it():
    for name in ("L2", "S1-S2", "S2-S1"):
        assert to_json(remove(seed_example(), name)) == to_json(seed_example(without="L2"))


def test_a_removed_switch_removes_its_cables():
    topology = Topology.of(leaf_spine(2, 2, 2), aggregates={"spine1": 100, "spine2": 100})
    assert remove(topology, "spine2").switches == ["leaf1", "leaf2", "spine1"]


def test_a_removal_that_disconnects_a_worker_is_refused():
    topology = remove(seed_example(), "L2")
    with pytest.raises(TopologyError, match="W1 has no path to PS"):
        remove(topology, "L1")
    with pytest.raises(TopologyError, match="there is no cable 'L9'"):
        remove(topology, "L9")


def test_reservations_hold_in_both_directions_and_add_up():
    topology = reserve(reserve(seed_example(), "L1=1"), "S3-S1=0.5")
    assert topology.free_gbps("S1", "S3") == topology.free_gbps("S3", "S1") == 1.5
    assert plan_single_tree(topology).rate_gbps < 3
    assert plan_single_tree(reserve(seed_example(), "PS-S3=0.1")).rate_gbps == pytest.approx(8.9 / 3)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("L1", "must be LINK=GBPS"),
        ("L1=much", "must be LINK=GBPS"),
        ("=1", "must be LINK=GBPS"),
        ("L1=-1", "must be"),
        ("L1=4", "reserved_gbps of S1-S3 must be 0 to its bw_gbps"),
        ("L7=1", "no cable 'L7'"),
    ],
)
def test_reserve_wrong(given, why):
    with pytest.raises(TopologyError, match=why):
        reserve(seed_example(), given)


def test_an_upgrade_has_the_best_capacity_or_the_bandwidth_of_all_cables():
    topology = seed_example()
    assert make_upgrade(topology, 2) == (2, 9.0) and make_upgrade(topology, 1, 5.0) == (1, 5.0)
    plain = Topology.of(leaf_spine(2, 1, 4, nic_gbps=10, uplink_gbps=40), ps="leaf1-h1")
    assert make_upgrade(plain, 1) == (1, 80.0)
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        make_upgrade(topology, 0)


@pytest.mark.parametrize("kind", ["tree", "trees"])
def test_only_upgrades_that_raise_the_rate_are_made(kind):
    """An upgrade of leaf2 raises the rate. More upgrades than that raise nothing."""
    topology = Topology.of(leaf_spine(2, 1, 4, nic_gbps=10, uplink_gbps=20), aggregates={"leaf1": 60, "spine1": 60})
    slow, best = make_plan(topology, kind), make_plan(topology.with_capacity({"leaf2": 60.0}), kind)
    assert best.rate_gbps > slow.rate_gbps
    for count in (1, 2, 3):
        plan = make_plan(topology, kind, upgrade=make_upgrade(topology, count))
        assert (plan.upgraded, plan.rate_gbps) == ({"leaf2": 60.0}, pytest.approx(best.rate_gbps))
    enough = Topology.of(leaf_spine(2, 1, 4, nic_gbps=10, uplink_gbps=100), aggregates={"spine1": 80})
    assert make_plan(enough, kind, upgrade=make_upgrade(enough, 2, 200.0)).upgraded == {}

"""The fabrics of the paper have the numbers that it states."""

from collections import Counter

import pytest

from iswitch.plan.figures.fabrics import FABRICS, SMALL_FABRICS, make_testbed, make_topology


def test_networks_have_the_switches_and_servers_of_the_paper():
    counted = [Counter(kind for _, kind in fabric.graph().nodes(data="kind")) for fabric in FABRICS]
    assert counted[0] == {"switch": 80, "host": 192}
    assert counted[1]["switch"] == 60 and 500 <= counted[1]["host"] < 500 + 30


@pytest.mark.parametrize(("fabric", "workers", "chosen"), [(FABRICS[0], 100, 16), (FABRICS[1], 250, 12)])
def test_workers_fill_racks_and_a_fifth_of_the_switches_is_chosen(fabric, workers, chosen):
    topology = make_topology(fabric, workers, chosen=True, seed=1)
    racks = Counter(group.at for group in topology.groups() for _ in group.workers)
    assert set(racks.values()) == {fabric.workers} and len(topology.workers) == workers
    assert len(topology.aggregators) == chosen
    assert all(100 <= topology.graph.nodes[switch]["capacity_gbps"] <= 3200 for switch in topology.aggregators)
    racks_only = make_topology(fabric, workers, chosen=False, seed=1)
    assert set(racks) < set(racks_only.aggregators) and len(racks_only.aggregators) == fabric.size * (
        4 if fabric.size == 8 else 1
    )
    (switch,) = topology.graph[topology.ps]
    assert switch not in racks


def test_a_seed_gives_the_same_network_and_another_seed_another():
    made = [make_topology(SMALL_FABRICS[0], 4, chosen=True, seed=seed) for seed in (1, 1, 2)]
    capacities = [[each.graph.nodes[switch].get("capacity_gbps") for switch in each.switches] for each in made]
    assert capacities[0] == capacities[1] != capacities[2]


def test_more_workers_than_servers_wrong():
    with pytest.raises(ValueError, match="workers must be at most 14 on this fat-tree, not 15"):
        make_topology(SMALL_FABRICS[0], 15, chosen=False, seed=1)


@pytest.mark.parametrize(("workers", "switches", "cables"), [(2, 1, 3), (4, 2, 6), (6, 3, 10), (8, 3, 12)])
def test_the_testbed_grows_by_two_workers(workers, switches, cables):
    topology = make_testbed(workers, nic_gbps=50, server_gbps=64)
    assert (len(topology.workers), len(topology.switches), len(topology.graph.edges)) == (workers, switches, cables)
    assert topology.free_gbps("PS", "S1") == 64 and topology.free_gbps("W1", "S1") == 50

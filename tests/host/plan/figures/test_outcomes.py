"""The schemes of the figures: closed forms, and orders that must hold on every topology."""

import networkx as nx
import pytest

from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.figures.fabrics import FABRICS, SMALL_FABRICS, make_testbed, make_topology
from iswitch.plan.figures.outcomes import LEVEL, PROGRAM, TREE, find_first_aggregators, run_schemes
from iswitch.plan.figures.published import ATP, GERYON, GRID, SWITCHML


@pytest.mark.parametrize("fabric", SMALL_FABRICS, ids=lambda fabric: fabric.kind)
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_plans_are_at_least_as_fast_as_what_they_contain(fabric, chosen, seed):
    topology = make_topology(fabric, 6, chosen=chosen, seed=seed)
    found = run_schemes(topology, seed=seed, time_s=0.5)
    rates = {scheme: outcome.rate_gbps for scheme, outcome in found.items()}
    assert rates[TREE] >= rates[LEVEL] - 1e-6 and rates[LEVEL] >= max(rates[GRID], rates[SWITCHML]) - 1e-6
    assert rates[ATP] >= max(rates[SWITCHML], rates[GERYON]) - 1e-6
    assert rates[PROGRAM] >= rates[GRID] - 1e-6
    assert rates[GERYON] == pytest.approx(100 / 6)
    for scheme, outcome in found.items():
        if scheme != PROGRAM:
            assert outcome.switches_gbps <= 6 * outcome.rate_gbps + 1e-6
            assert outcome.server_gbps <= 100 + 1e-6


def test_racks_of_the_fat_tree_share_the_ps():
    """Ten racks of four workers: each rack's sum is a stream to the ps, so its 100 Gb/s are divided by ten."""
    found = run_schemes(make_topology(FABRICS[0], 40, chosen=False, seed=1), time_s=0.2)
    assert found[SWITCHML].rate_gbps == pytest.approx(10) and found[ATP].rate_gbps == pytest.approx(10)
    assert found[SWITCHML].switches_gbps == pytest.approx(400) and found[SWITCHML].server_gbps == pytest.approx(100)
    assert found[GERYON] == (pytest.approx(2.5), 0, pytest.approx(100))


def test_the_first_aggregator_is_on_a_shortest_path_and_none_is_before_it():
    topology = make_topology(FABRICS[0], 100, chosen=True, seed=3)
    nearest = NearestTrees(topology)
    first = find_first_aggregators(topology, nearest, 3)
    assert 0 < len(first) < len(topology.workers)
    hops = dict(nx.single_source_shortest_path_length(topology.graph, topology.ps))
    for worker, home in first.items():
        assert home in topology.aggregators
        assert nx.shortest_path_length(topology.graph, worker, home) + hops[home] == hops[worker]
    own = {worker: at for worker, at in nearest.start.items() if at in topology.aggregators}
    assert own and own.items() <= first.items()


def test_the_testbed_of_two_workers_is_limited_by_their_cables():
    found = run_schemes(make_testbed(2, nic_gbps=50, server_gbps=64), time_s=1)
    assert [found[scheme].rate_gbps for scheme in (GRID, ATP, SWITCHML, GERYON)] == pytest.approx([50, 50, 50, 32])

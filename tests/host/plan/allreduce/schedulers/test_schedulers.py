"""Schedules of parameter servers, rings and fixed trees need the rounds of their closed forms and published values.
Greedy needs no more than published."""

import pytest

from iswitch.plan.allreduce.learning.greedy import RarestFirst, best_of_episodes, greedy_schedule
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule
from iswitch.plan.allreduce.model.topologies import SERVER_CENTRIC, TOPOLOGIES, build_topology
from iswitch.plan.allreduce.model.verify import verify
from iswitch.plan.allreduce.schedulers import overlap
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases
from iswitch.plan.allreduce.schedulers.parameter_server import (
    fixed_trees,
    merging_parameter_server,
    plain_parameter_server,
    plain_parameter_server_rounds,
)
from iswitch.plan.allreduce.schedulers.ring import find_ring_order, ring, ring_rounds

# By name: parameter server plain and merging, ring 0, 1, ... and in a suitable order, greedy, best of up to 160. These
# numbers were computed without this package.
REFERENCE = {
    "BCube(2,1)": (16, 10, 12, 6, 4, 4),
    "BCube(3,1)": (72, 36, 32, 16, 12, 10),
    "BCube(4,1)": (256, 98, 60, 30, 24, 20),
    "BCube(5,1)": (600, 200, 96, 48, 40, 32),
    "BCube(2,2)": (48, 18, 42, 14, 8, 8),
    "BCube(3,2)": (486, 110, 156, 52, 32, 28),
    "BCube(2,3)": (128, 36, 120, 30, 14, 12),
    "DCell(2,1)": (36, 16, 30, 10, 6, 6),
    "DCell(3,1)": (144, 52, 88, 22, 14, 12),
    "DCell(4,1)": (480, 126, 152, 38, 26, 26),
    "DCell(5,1)": (None, 248, 232, 58, 46, 44),
    "DCell(2,2)": (None, 94, 574, 82, 44, 38),
    "Jellyfish(8,3)": (112, 48, 14, 14, 18, 16),
    "Jellyfish(10,3)": (180, 60, 54, 18, 32, 26),
    "Jellyfish(16,4)": (480, 130, 30, 30, 50, 38),
    "Jellyfish(20,4)": (760, 160, 76, 38, 56, 48),
    "Jellyfish(8,3,1,2)": (480, 128, 30, 30, 60, 56),
}
LARGE = (
    "BCube(5,1)",
    "BCube(3,2)",
    "DCell(5,1)",
    "DCell(2,2)",
    "Jellyfish(16,4)",
    "Jellyfish(20,4)",
    "Jellyfish(8,3,1,2)",
)
BEST_OF = {"DCell(3,1)": 64}  # episodes, where 16 are not enough


@pytest.fixture(scope="module")
def networks():
    return {name: Network(build_topology(name)) for name in TOPOLOGIES}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_parameter_server_needs_its_closed_form(networks, name):
    network, published = networks[name], REFERENCE[name][0]
    schedule = plain_parameter_server(network)
    assert schedule.length == plain_parameter_server_rounds(network)
    assert published is None or schedule.length == published
    verify(network.graph, schedule)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_ring_in_the_order_of_numbers_needs_its_closed_form(networks, name):
    """Published values come from routes chosen independently; ours spread over the links. Values of Jellyfish depend on
    the random graph."""
    network, published = networks[name], REFERENCE[name][2]
    schedule = ring(network)
    assert schedule.length == ring_rounds(network)
    if name.startswith("BCube"):
        assert schedule.length == published
    elif name.startswith("DCell"):
        assert schedule.length <= published
    verify(network.graph, schedule)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_ring_in_a_suitable_order_needs_one_round_for_each_step(networks, name):
    network = networks[name]
    order = find_ring_order(network)
    schedule = ring(network, order)
    assert schedule.length == ring_rounds(network, order) == 2 * (network.size - 1) == REFERENCE[name][3]
    verify(network.graph, schedule)


@pytest.mark.parametrize("name", SERVER_CENTRIC)
def test_parameter_server_over_trees_is_at_or_below_its_published_value(networks, name):
    schedule = merging_parameter_server(networks[name])
    assert schedule.length <= REFERENCE[name][1]
    verify(networks[name].graph, schedule)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_greedy_is_at_or_below_its_published_value(networks, name):
    network = networks[name]
    schedule = greedy_schedule(NetworkArrays(network))
    verify(network.graph, schedule)
    assert schedule.length <= REFERENCE[name][4]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in TOPOLOGIES]
)
def test_best_of_k_is_at_or_below_its_published_value(networks, name):
    network = networks[name]
    schedule = overlap_phases(
        best_of_episodes(RarestFirst(), NetworkArrays(network), k=BEST_OF.get(name, 16), seed=0, name="best of k")
    )
    verify(network.graph, schedule)
    assert schedule.length <= REFERENCE[name][5]


def test_ring_order_wrong(networks):
    with pytest.raises(ValueError, match="each of 4 servers once"):
        ring(networks["BCube(2,1)"], [0, 1, 2, 2])


@pytest.mark.parametrize("name", ["BCube(4,1)", "BCube(5,1)", "DCell(3,1)", "Jellyfish(8,3)"])
def test_overlapping_the_phases_never_lengthens_and_still_sums(networks, name):
    network = networks[name]
    before = fixed_trees(network)
    after = overlap_phases(before)
    verify(network.graph, after)
    assert after.length <= before.length and after.flows == before.flows


def test_overlapping_shortens_somewhere(networks):
    assert overlap_phases(fixed_trees(networks["BCube(5,1)"])).length < fixed_trees(networks["BCube(5,1)"]).length


def test_scheduling_backward_and_forward_shortens_and_still_sums(networks, monkeypatch):
    network = networks["BCube(2,2)"]
    shorter = overlap_phases(merging_parameter_server(network))
    verify(network.graph, shorter)
    monkeypatch.setattr(overlap, "PASSES", 0)
    assert shorter.length < overlap_phases(merging_parameter_server(network)).length


def test_held_values_are_not_overlapped():
    with pytest.raises(ValueError, match="cannot be overlapped"):
        overlap_phases(Schedule("x", 2, [[Flow(0, ("a", "b"), Op.HOLD, "a")]]))

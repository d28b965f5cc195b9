"""HiGHS proves the fewest rounds of tiny networks."""

import pytest

from iswitch.plan.allreduce.model.bounds import find_bounds
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import build_topology
from iswitch.plan.allreduce.model.verify import verify
from iswitch.plan.allreduce.schedulers.exact import find_fewest_rounds

OPTIMA = {"BCube(2,0)": 2, "BCube(3,0)": 4, "BCube(2,1)": 4, "DCell(2,1)": 6, "BCube(2,2)": 6, "Jellyfish(4,2)": 6}


@pytest.mark.parametrize("name", OPTIMA)
def test_fewest_rounds_of_tiny_networks(name):
    network = Network(build_topology(name))
    found = find_fewest_rounds(network)
    assert found.least == OPTIMA[name] and found.schedule.length == found.least >= find_bounds(network).best
    verify(network.graph, found.schedule)


def test_a_schedule_that_was_not_found_is_not_claimed():
    network = Network(build_topology("BCube(2,1)"))
    found = find_fewest_rounds(network, rounds_max=3)
    assert found.schedule is None and found.least == 4  # three rounds are proved too few
    assert find_fewest_rounds(network, time_s=0).least == find_bounds(network).best

"""Counts of the learned scheduler on random networks."""

import pytest

from iswitch.plan.allreduce.compare import compare_schedulers
from iswitch.plan.allreduce.model.random_networks import build_random_network
from iswitch.plan.allreduce.unseen import UNSEEN_HEADER, count_family

FAMILY = "servers with unequal ports"


def test_counts_are_those_of_single_comparisons():
    found = count_family(FAMILY, 2, k=3)
    compared = [compare_schedulers(build_random_network(FAMILY, seed), k=3) for seed in (1, 2)]
    rounds = [{name: made.length for name, made in each.schedules.items()} for each in compared]
    assert found.learned == sum(each["learned"] for each in rounds)
    assert found.longer == sum(each["learned"] > each["greedy, best of 3"] for each in rounds)
    assert found.shorter + found.equal + found.longer == 2
    assert found.emitted_longer == 0 and found.bound == sum(each.bounds.best for each in compared)
    assert len(found.text) == len(UNSEEN_HEADER)


def test_counting_from_a_later_seed_leaves_out_the_networks_before():
    both, one = count_family(FAMILY, 2, k=1), count_family(FAMILY, 1, k=1)
    assert (one + count_family(FAMILY, 1, k=1, first=2))[1:] == both[1:]


def test_sums_of_counts_keep_the_first_family():
    one = count_family("trees of servers", 1, k=1)
    assert (one + one)[1:] == tuple(2 * value for value in one[1:]) and (one + one).family == one.family


def test_no_networks_wrong():
    with pytest.raises(ValueError, match="networks must be at least 1, not 0"):
        count_family(FAMILY, 0)

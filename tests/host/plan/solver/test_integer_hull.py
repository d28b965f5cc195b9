"""The facets of what fits a capacity, compared with all whole numbers of streams."""

import random
from itertools import product

from iswitch.plan.solver.integer_hull import facets

MOST = 25


def fitting(capacity, gradient_size, sum_size):
    """Return all numbers of gradients and partial sums that fit."""
    return {
        (gradients, sums)
        for gradients, sums in product(range(MOST), range(MOST))
        if gradients * gradient_size + sums * sum_size <= capacity
    }


def test_facets_touch_what_fits_and_cut_off_the_rest():
    rng = random.Random(1)
    for _ in range(300):
        sizes = rng.choice([1, 1.125]), rng.choice([1, 1.125, 2.125, 2.3])
        capacity = rng.uniform(0.1, 20)
        fit, found = fitting(capacity, *sizes), facets(capacity, *sizes, sums_max=64)
        for facet in found:
            assert max(facet.gradients * gradients + facet.sums * sums for gradients, sums in fit) == facet.most
        alone = max(gradients for gradients, _ in fit)
        for gradients, sums in set(product(range(alone + 1), range(MOST))) - fit:
            assert any(facet.gradients * gradients + facet.sums * sums > facet.most for facet in found)


def test_three_sums_or_five_gradients_fit_a_switch_of_40_gbps_at_6_27():
    """By hand: 40 / 6.27 is 6.38; sizes are 1.125 and 2.125. Three gradients and one sum are inside the hull."""
    assert [tuple(facet) for facet in facets(40 / 6.27, 1.125, 2.125, sums_max=64)] == [(0, 1, 3), (3, 5, 15)]


def test_many_sums_need_no_facets():
    assert facets(1000.0, 1.125, 2.125, sums_max=64) == []

"""Numbers on the page of `iswitch report`."""

import itertools
import math

import pytest

from iswitch.report.numbers import nice_ticks, short_number


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (1.5, "1.5"), (999.4, "999"), (999.6, "1k"), (-12_340, "-12.3k"), (4.56e6, "4.56M"), (7e9, "7G")],
)
def test_a_number_has_three_digits_and_a_unit(number, text):
    assert short_number(number) == text


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 7), (-3, 40), (0, 1e-6), (0, 3.1e9), (-500, -20), (0, 0), (5, 5), (0, 0.3)]
)
def test_ticks_are_few_round_and_span_the_range(low, high):
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8
    steps = {f"{b - a:.9g}" for a, b in itertools.pairwise(ticks)}
    assert len(steps) == 1 and f"{float(steps.pop()):e}"[0] in "125"


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1), (0, 3), (-2, 4), (0, 12), (0, 1_000_001)])
def test_the_ticks_of_what_is_counted_are_whole(low, high):
    ticks = nice_ticks(low, high, whole=True)
    assert all(tick == math.floor(tick) for tick in ticks)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8

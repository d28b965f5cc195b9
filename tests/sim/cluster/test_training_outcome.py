"""The median of several trainings."""

import pytest

from sim.cluster.training_outcome import Row, median_s


@pytest.mark.parametrize(
    "solved, median", [([True, True, True], 2), ([True, True, False], 3), ([False, True, False], None)]
)
def test_an_unsolved_training_counts_as_infinitely_long(solved, median):
    """Seeds that take 1, 2 and 3 seconds, in another order."""
    rows = [Row(1, each, seconds, 450.0, 1, 1, 450.0, "") for each, seconds in zip(solved, (2.0, 3.0, 1.0))]
    assert median_s(rows) == median

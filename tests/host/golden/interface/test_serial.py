"""Serial numbers by hand, around the end of their range."""

import pytest

from iswitch.golden.interface.serial import SERIAL, ahead


@pytest.mark.parametrize(
    ("newer", "older", "distance"),
    [
        (5, 3, 2),
        (3, 5, -2),
        (1, SERIAL - 1, 2),
        (SERIAL - 1, 1, -2),
        (SERIAL // 2 - 1, 0, SERIAL // 2 - 1),
        (SERIAL // 2, 0, -SERIAL // 2),
    ],
)
def test_the_shorter_way_around_counts(newer, older, distance):
    assert ahead(newer, older) == distance

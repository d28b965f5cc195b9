"""Waiting ends with what was waited for, with an obstacle, or with the time."""

import pytest

from sim.bench.until import until


def test_what_holds_is_returned():
    came = iter([0, 0, 7])
    assert until(lambda: next(came), 30) == 7


def test_an_obstacle_or_the_end_of_the_time_is_reported():
    with pytest.raises(AssertionError, match="it has died"):
        until(lambda: False, 30, unless=lambda: "it has died")
    with pytest.raises(AssertionError, match=r"not within 0\.05 s"):
        until(lambda: False, 0.05)

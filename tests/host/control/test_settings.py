"""Checks of arguments."""

import numpy as np
import pytest

from iswitch.control.settings import require_evict, require_int, require_one_of, require_seconds


@pytest.mark.parametrize("value", [1, 32, np.int64(7)])
def test_an_integer_in_range_is_accepted(value):
    require_int("world", value, 1, 32)


@pytest.mark.parametrize("value", [0, 33])
def test_integer_out_of_range_wrong(value):
    with pytest.raises(ValueError, match=f"world must be 1 to 32, not {value}"):
        require_int("world", value, 1, 32)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_integer_type_wrong(value):
    with pytest.raises(TypeError, match=f"world must be an int, not {type(value).__name__}"):
        require_int("world", value, 1, 32)


@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_seconds_wrong(value):
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        require_seconds(switch_timeout_s=1.0, timeout_s=value)


@pytest.mark.parametrize("value", [0.001, -1, 600])
def test_evict_wrong(value):
    with pytest.raises(ValueError, match=r"evict_s must be 0, or 0\.016 to 536\.9"):
        require_evict(value)


@pytest.mark.parametrize("value", [0, 0.02, 5, 536])
def test_evict_that_the_switch_can_measure_is_accepted(value):
    require_evict(value)


def test_unknown_name_wrong():
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b', not 'c'"):
        require_one_of("mode", "c", ("a", "b"))

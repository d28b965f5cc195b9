"""Which units of a log are free."""

import numpy as np
import pytest

from iswitch.replay.log_space import LogSpace


def test_a_former_clients_log_is_free_after_enough_adds():
    space = LogSpace(units=64, written=100, oldest=60, adds=10, capacity=16)
    assert space.free_units(10) == space.free_units(25) == 24 and space.free_units(26) == 64


def test_free_units_are_those_that_no_item_needs():
    """Against a plain list of all pins."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        space, adds, held, oldest = LogSpace(units=200, written=7, oldest=7, adds=0, capacity=8), 0, [], 0
        for _ in range(300):
            pin = space.pin_items()
            units = int(rng.integers(0, 20))
            needed = min([unit for unit, last in held if last >= adds], default=space.end)
            oldest = max(oldest, space.oldest)
            assert space.free_units(adds) == 200 - (space.end - max(needed, oldest))
            if units > space.free_units(adds):
                space.discard(pin)
                adds += 1
                continue
            if units:
                space.reserve(units, adds)
            for _ in range(int(rng.integers(1, 4))):
                floor = max(space.oldest, space.end - int(rng.integers(0, 40)))
                pin.begin_item(space.end)
                pin.require(floor)
                adds += 1
                held.append((floor, adds + 8 - 1))
            assert space.oldest_needed(adds) <= pin.unit <= min(pin.first_units)
            space.acknowledge(pin, adds + 8 - 1)


def test_parameters_are_kept_until_their_room_is_needed():
    space = LogSpace(units=64, written=0, oldest=0, adds=0, capacity=16)
    for _ in range(3):
        start, _ = space.reserve(20, 0)
        space.pin_parameters(start, keep=3)
    assert space.free_units(0) == 4
    assert space.release_optional() and space.free_units(0) == 24
    assert space.release_optional() and space.free_units(0) == 44
    assert not space.release_optional()
    space.unpin_parameters()
    assert space.free_units(0) == 64


def test_reserve_wrong():
    with pytest.raises(ValueError, match="units must fit the 64 that are free, not 65"):
        LogSpace(units=64, written=0, oldest=0, adds=0, capacity=16).reserve(65, 0)

import pytest

from iswitch.serial import serial_distance


@pytest.mark.parametrize(
    ("newer", "older", "ahead"),
    [
        (0, 2**32 - 1, 1),
        (2**32 - 1, 0, -1),
        (5, 5, 0),
        (2**31, 0, -(2**31)),
        (1, 0, 1),
        (0, 1, -1),
        (2**31 - 1, 0, 2**31 - 1),
    ],
)
def test_serial_numbers_compare_as_in_rfc_1982(newer, older, ahead):
    assert serial_distance(newer, older) == ahead

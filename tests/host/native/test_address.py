"""The address of an array is numpy's."""

import numpy as np
import pytest

from iswitch.native.address import address_of
from iswitch.wire import RESULT_HEADER

WHOLE = np.zeros((6, 8), np.float32)


@pytest.mark.parametrize(
    "array",
    [WHOLE, WHOLE[2:], WHOLE[6:], np.zeros(0), np.zeros(3, RESULT_HEADER), np.array(1.0), WHOLE.view(np.uint8)[1:]],
    ids=["whole", "part", "empty part", "empty", "records", "no dimension", "octets"],
)
def test_the_address_is_that_of_the_first_element(array):
    assert address_of(array) == array.ctypes.data


def test_an_array_that_c_must_not_write_has_no_address():
    array = np.zeros(4)
    array.flags.writeable = False
    with pytest.raises(TypeError, match="not writable"):
        address_of(array)
    with pytest.raises((TypeError, ValueError, BufferError), match="contiguous"):
        address_of(WHOLE[:, 0])

"""Where an array is in memory, for functions in C."""

import ctypes

import numpy as np

__all__ = ["address_of"]

_NO_BYTES = ctypes.c_char * 0


def address_of(array: np.ndarray) -> int:
    """Return the address of a writeable, C-contiguous array: `array.ctypes.data` in a quarter of the time.

    Raises
    ------
    TypeError, ValueError
        If the array is read-only or not contiguous.
    """
    return ctypes.addressof(_NO_BYTES.from_buffer(array.data))

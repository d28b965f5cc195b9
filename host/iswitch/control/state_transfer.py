"""The state of the worker that is farthest, for all: whose it is, and arrays as one vector."""

from collections.abc import Sequence

import numpy as np

from iswitch.driver.buffers import require_array

__all__ = ["elect", "fill", "flat"]


def elect(table: np.ndarray) -> tuple[int, int]:
    """Whose state is taken, and its step. table: i4, (3 x world): for each rank 1 if it takes part, and its step in two
    parts of 31 bits."""
    rows = table.reshape(-1, 3).astype(np.int64)
    steps = np.where(rows[:, 0] == 1, rows[:, 2] << 31 | rows[:, 1], -1)
    root = int(steps.argmax())
    return root, int(steps[root])


def flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The bytes of all arrays one after another as i4, padded with zeros. TypeError, ValueError if one cannot be
    filled."""
    for array in arrays:
        require_array("state", array)
        if array.dtype.hasobject:
            raise TypeError("state must hold numbers, not Python objects: pass arrays of numbers")
        if not array.flags.writeable:
            raise ValueError(
                "state must be writeable, because the state of another worker replaces it: pass copies, and keep them"
            )
    octets = b"".join(array.tobytes() for array in arrays)
    return np.frombuffer(octets + bytes(-len(octets) % 4), "<i4")


def fill(arrays: Sequence[np.ndarray], values: np.ndarray) -> None:
    """The opposite of `flat`: the arrays' bytes become those of `values`."""
    at = 0
    for array in arrays:
        octets = values.view(np.uint8)[at : at + array.nbytes]
        array[...] = octets.view(array.dtype).reshape(array.shape)
        at += array.nbytes

"""Give all workers the state of the most advanced worker: choose that worker, and send arrays as one vector."""

from collections.abc import Sequence

import numpy as np

from iswitch.driver.buffers import require_array

__all__ = ["most_advanced", "pack_arrays", "unpack_arrays"]


def most_advanced(table: np.ndarray) -> tuple[int, int]:
    """Choose the worker whose state all workers receive. Of several with the highest step, the lowest rank is chosen.

    Parameters
    ----------
    table : int32 array of shape (3 * world,)
        For each rank: 1 if the worker takes part, and its step as two parts of 31 bits, the low part first.

    Returns
    -------
    rank, step : int
        The chosen worker and its step.
    """
    rows = table.reshape(-1, 3).astype(np.int64)
    steps = np.where(rows[:, 0] == 1, rows[:, 2] << 31 | rows[:, 1], -1)
    rank = int(steps.argmax())
    return rank, int(steps[rank])


def pack_arrays(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the bytes of all arrays, one after another, as an int32 vector padded with zeros.

    Parameters
    ----------
    arrays : sequence of arrays
        Of any shape and type but Python objects, writeable.

    Raises
    ------
    TypeError
        If a value is not an array, or holds Python objects.
    ValueError
        If an array is not writeable.
    """
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


def unpack_arrays(arrays: Sequence[np.ndarray], values: np.ndarray) -> None:
    """Fill the arrays with the bytes of a vector that `pack_arrays` returned for arrays of the same shapes and types."""
    at = 0
    for array in arrays:
        octets = values.view(np.uint8)[at : at + array.nbytes]
        array[...] = octets.view(array.dtype).reshape(array.shape)
        at += array.nbytes

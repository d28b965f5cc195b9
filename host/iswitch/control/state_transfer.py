"""Transfer of state between workers: arrays as one vector, the choice of a sender, and the copy to a joining worker.

In a synchronous job, `Worker.sync_state` copies the state of the most advanced worker to all by two collectives.

In an asynchronous job the other workers do not stop for a joining worker. The joining worker sends its request in the
trailer of a vector of zeros, which becomes part of an update as any other vector does. So all workers read the request
at the same update, and agree on the one that answers. The two then copy the state in a synchronous job of their own,
whose number the joining worker has chosen among the free ones.
"""

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np

from iswitch.control.client import Control
from iswitch.driver.buffers import require_array
from iswitch.errors import IswitchError
from iswitch.wire import JobState

__all__ = [
    "CANDIDATE",
    "TRANSFER_NOTE",
    "Broadcaster",
    "TakesPart",
    "copy_state",
    "free_job",
    "most_advanced",
    "pack_arrays",
    "transfer_key",
    "unpack_arrays",
]

TRANSFER_NOTE = np.dtype([("updates", "<u8"), ("seq", "<u4"), ("digest", "u1", 32)])
"""What a joining worker learns with the weights: the number of updates in them, the seq with which the next update
begins, and the digest of those updates."""


class Broadcaster(Protocol):
    """A worker of the job that connects sender and joining worker."""

    def broadcast(self, buffer: np.ndarray, root: int = 0) -> np.ndarray: ...


class TakesPart(IntEnum):
    """How a worker takes part in an election."""

    WITH_STATE = 1
    WITHOUT_STATE = 2
    """It has joined the running job, and has not yet received the state of the others."""


CANDIDATE = np.dtype(
    [("takes_part", "<i4"), ("step_low", "<i4"), ("step_high", "<i4"), ("position", "<i4"), ("checksum", "<u4")]
)
"""A worker's row in the election of the worker whose state all receive. The step has two parts of 31 bits. `position`
and `checksum`: the worker's progress, which all workers adopt with its state."""


def most_advanced(table: np.ndarray) -> tuple[int | None, int]:
    """Choose the worker whose state all workers receive. Of several with the highest step, the lowest rank is chosen.

    Parameters
    ----------
    table : numpy.ndarray
        `CANDIDATE`, shape (world,): the row of each rank, zeros if the worker does not take part.

    Returns
    -------
    rank : int or None
        The chosen worker; None if no worker has a state.
    step : int
        Its step, or -1.
    """
    steps = table["step_high"].astype(np.int64) << 31 | table["step_low"]
    steps[table["takes_part"] != TakesPart.WITH_STATE] = -1
    rank = int(steps.argmax())
    return (rank if steps[rank] >= 0 else None), int(steps[rank])


def pack_arrays(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the bytes of all arrays, one after another, as an int32 vector padded with zeros.

    Parameters
    ----------
    arrays : sequence of arrays
        Of any shape and numeric dtype, writeable.

    Raises
    ------
    TypeError
        If a value is not an array, or its dtype is object.
    ValueError
        If an array is not writeable.
    """
    for array in arrays:
        require_array("state", array)
        if array.dtype.hasobject:
            raise TypeError("state must have a numeric dtype, not object: pass arrays of numbers")
        if not array.flags.writeable:
            raise ValueError(
                "state must be writeable, because the state of another worker replaces it: pass copies, and keep them"
            )
    octets = b"".join(array.tobytes() for array in arrays)
    return np.frombuffer(octets + bytes(-len(octets) % 4), "<i4")


def unpack_arrays(arrays: Sequence[np.ndarray], values: np.ndarray) -> None:
    """Fill the arrays with the bytes of a vector that `pack_arrays` returned for arrays of the same shapes and
    types."""
    at = 0
    for array in arrays:
        octets = values.view(np.uint8)[at : at + array.nbytes]
        array[...] = octets.view(array.dtype).reshape(array.shape)
        at += array.nbytes


# To a joining worker of an asynchronous job


def free_job(control: Control, jobs: int) -> int:
    """Return the highest number that no job has.

    Parameters
    ----------
    control : Control
        Reads the jobs' states.
    jobs : int
        Number of jobs that the switch can hold.

    Raises
    ------
    IswitchError
        If all numbers are in use.
    """
    for job in reversed(range(jobs)):
        if control.job(job).state == JobState.NONE:
            return job
    raise IswitchError(
        f"all {jobs} jobs of the switch are in use, and a joining worker needs a free job until it has the weights: "
        "end a job with "
        "`iswitch end-job`, or build the switch with more `jobs`"
    )


def transfer_key(key: int, rank: int) -> int:
    """Return the key of the job in which a joining worker receives the weights, so that no other worker enters it.

    Parameters
    ----------
    key : int
        Key of the asynchronous job.
    rank : int
        The joining worker's rank there.
    """
    return int.from_bytes(hashlib.sha256(b"%d %d" % (key, rank)).digest()[:8], "little")


def copy_state(worker: Broadcaster, arrays: Sequence[np.ndarray], note: np.ndarray, *, sends: bool) -> None:
    """Copy arrays and a note from rank 0 of a job of two to rank 1.

    Parameters
    ----------
    worker : Broadcaster
        This worker of that job.
    arrays : sequence of numpy.ndarray
        The state. The receiver fills its arrays at the end, or leaves them as they were if an error comes before.
    note : numpy.ndarray
        `TRANSFER_NOTE`, shape (1,).
    sends : bool
        True at rank 0.

    Raises
    ------
    IswitchError
        As `Worker.broadcast`.
    """
    values = pack_arrays(arrays).copy()
    worker.broadcast(values)
    worker.broadcast(note)
    if not sends:
        unpack_arrays(arrays, values)

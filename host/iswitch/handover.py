"""State transfer to a newcomer of a running asynchronous job, by a synchronous job of two workers beside it.

The newcomer sends its request in the trailer of a vector of zeros, which becomes part of an update like any other
vector. So all workers read the request at the same update, and agree which worker answers. These two then meet in a job
of their own, whose number the newcomer has chosen among the free ones.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from iswitch.control.client import Control
from iswitch.control.state_transfer import pack_arrays, unpack_arrays
from iswitch.errors import IswitchError
from iswitch.wire import JobState
from iswitch.worker import Worker

__all__ = ["NOTE", "free_job", "hand_over"]

NOTE = np.dtype([("number", "<u8"), ("seq", "<u4"), ("digest", "u1", 32)])
"""With how many updates the state is made, the seq with which the next one begins, and the digest of those."""


def free_job(control: Control, jobs: int) -> int:
    """Returns the highest number that no job has. Raises IswitchError if all are in use."""
    for job in reversed(range(jobs)):
        if control.job(job).state == JobState.NONE:
            return job
    raise IswitchError(
        f"all {jobs} jobs of the switch are in use, and a newcomer needs a free one until it has the weights: end a job, or build the "
        "switch with more `jobs`"
    )


def hand_over(
    address: str,
    note: np.ndarray,
    arrays: Sequence[np.ndarray],
    *,
    giver: bool,
    job: int,
    key: int,
    rank: int,
    timeout_s: float,
) -> None:
    """Copies note and arrays from the giver to the newcomer, whose rank and key in the asynchronous job tell this from
    other handovers. Raises as `Worker` and `Worker.broadcast`; at the newcomer the arrays are then as they were."""
    own_key = int.from_bytes(hashlib.sha256(b"%d %d" % (key, rank)).digest()[:8], "little")
    with Worker(
        address,
        world=2,
        rank=0 if giver else 1,
        job=job,
        key=own_key,
        format="int32",
        timeout_s=timeout_s,
        switch_timeout_s=timeout_s,
        join_timeout_s=timeout_s,
    ) as worker:
        values = pack_arrays(arrays).copy()
        worker.broadcast(values)
        worker.broadcast(note)
    if not giver:
        unpack_arrays(arrays, values)

"""The one operation from which all collectives of the process group are made: the sum of a vector over all ranks.

A broadcast is the sum of one rank's bits with zeros; a gather is the sum of a table in which each rank fills its row.
"""

import re
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.distributed as dist

from iswitch.errors import IswitchError, NoContributionError, RecoverableError
from iswitch.golden.numeric import window64
from iswitch.golden.numeric.lane import exponent_limit
from iswitch.worker import Worker

__all__ = ["RESTART", "GlooReducer", "Reducer", "SwitchReducer", "WorkersMissingError"]

RESTART = "Start the script again from a checkpoint (torchrun --max-restarts does so)"
"""What to do after a rank has died."""
_SIZES_KEPT = 4
"""The most sizes of sums for which gloo's tensor is kept."""
_GLOO_FRAME = re.compile(r"^\[\S*\.cc:\d+\] | This is typically .*")
"""What is around the fact in an error of gloo: a line of its source, and advice."""


class WorkersMissingError(RecoverableError):
    """A sum lacks ranks: their processes have died, or cannot reach the switch. The tensors are as they were."""


class Reducer(Protocol):
    """Sums vectors over all ranks."""

    def sum(self, values: np.ndarray) -> bool:
        """Replace a vector by its sum over all ranks.

        Parameters
        ----------
        values : numpy.ndarray
            float32, or int32, which is summed modulo 2^32; 1-D, contiguous.

        Returns
        -------
        bool
            True if a rank has an element that is NaN, infinite or out of range. `values` is then as it was, and so it
            is after an error.
        """
        ...

    def finish(self) -> None:
        """Wait until every rank has the results of all sums."""
        ...

    def close(self) -> None:
        """Leave the job at once. A sum in progress raises an error."""
        ...


class SwitchReducer:
    """Sums in the switch.

    Parameters
    ----------
    worker : Worker
        A worker with `on_taint="ignore"` whose threshold is its world.
    remedy : str
        Sentence for the errors of the worker, which advise `rejoin`: a program with a process group has no worker.
        Empty if another reducer handles the errors.
    """

    def __init__(self, worker: Worker, remedy: str = "") -> None:
        self.worker = worker
        self._remedy = remedy
        worker.warns_missing = False  # such a sum is a WorkersMissingError
        self._failure: IswitchError | None = None  # of an earlier sum: the ranks no longer call the same one
        self._given = np.zeros(0, np.uint8)

    def sum(self, values: np.ndarray) -> bool:
        """Sum as `Reducer.sum`.

        Raises
        ------
        WorkersMissingError
            If a rank has left the job.
        IswitchError
            If the sum fails, or if an earlier one has failed.
        """
        if self._failure is not None:
            raise IswitchError(
                "this process group cannot call a collective, because an earlier one failed. Make a new group "
                "(`destroy_process_group` and `init_process_group`, at all ranks), or start the script again. The "
                f"earlier error: {self._failure}"
            ) from self._failure
        octets = values.view(np.uint8)
        if self._given.size < octets.size:
            self._given = np.empty(octets.size, np.uint8)
        given = self._given[: octets.size]
        given[:] = octets
        try:
            tainted = self._sum(values)
        except BaseException:
            octets[:] = given
            raise
        if tainted:
            octets[:] = given
        return tainted

    def finish(self) -> None:
        """Return at once: a rank that lacks a result receives it from the switch."""

    def close(self) -> None:
        """Leave the job."""
        self.worker.close()

    def _sum(self, values: np.ndarray) -> bool:
        try:
            reduction = self.worker.allreduce(values)
        except NoContributionError:  # all ranks have such elements in one segment
            return True
        except IswitchError as error:
            if self._remedy and isinstance(error, RecoverableError):
                error.args = (f"{error}. {self._remedy}",)
            self._failure = error
            raise
        if reduction.absent:
            ranks = ", ".join(map(str, reduction.absent))
            raise WorkersMissingError(
                f"the sum lacks rank {ranks}: the process has died, has left after an error of its own, or does not "
                f"reach the switch at {self.worker.address}. {RESTART}"
            )
        return bool(reduction.tainted)


class GlooReducer:
    """Sums with gloo, to the same bits as the switch: float32 elements are added as the switch's fixed-point numbers.

    Parameters
    ----------
    gloo : torch.distributed.ProcessGroupGloo
        A group of the same ranks.
    fraction : int
        Fraction bits of a float32 sum, as in `Worker`.
    """

    def __init__(self, gloo: Any, fraction: int) -> None:
        self._gloo, self._fraction, self._limit = gloo, fraction, exponent_limit(fraction)
        self._tensors: dict[int, torch.Tensor] = {}  # by size, the one that was used last at the end

    def sum(self, values: np.ndarray) -> bool:
        """Sum as `Reducer.sum`. Raises WorkersMissingError if gloo fails."""
        return self.sum_flagged(values, flag=False).tainted

    class Outcome(NamedTuple):
        """What a sum has found."""

        tainted: bool
        flags: int
        """Number of ranks whose flag was True."""

    def sum_flagged(self, values: np.ndarray, *, flag: bool) -> "GlooReducer.Outcome":
        """Sum as `Reducer.sum`, and count the ranks whose `flag` is True."""
        is_float = values.dtype == np.float32
        tensor = self._tensor(values.size + 2)
        numbers = tensor.numpy()
        numbers[-2] = 0
        if is_float:
            numbers[:-2], rejected, _ = window64.to_fixed(values.view(np.uint32), self._fraction, self._limit)
            numbers[-2] = rejected.any()
        else:
            numbers[:-2] = values
        numbers[-1] = flag
        try:
            self._gloo.allreduce([tensor], dist.ReduceOp.SUM).wait()
        except RuntimeError as error:
            words = _GLOO_FRAME.sub("", str(error).partition("\n")[0]).strip(" .")
            raise WorkersMissingError(
                f"gloo does not reach all ranks ({words}): a process has died, or has left after an error of its own. "
                f"{RESTART}"
            ) from error
        if numbers[-2]:
            return self.Outcome(True, int(numbers[-1]))
        if is_float:
            values.view(np.uint32)[:] = window64.from_fixed(numbers[:-2], self._fraction)
        else:
            values[:] = numbers[:-2].astype(np.int32)
        return self.Outcome(False, int(numbers[-1]))

    def _tensor(self, size: int) -> torch.Tensor:
        """Return an int64 tensor that is kept for later sums of this size.

        A thread of gloo holds the tensor for a moment longer than `wait`. If it dropped the last reference, it would
        need the interpreter's lock, and abort the process if the interpreter is ending.
        """
        tensor = self._tensors.pop(size, None)
        if tensor is None:
            tensor = torch.empty(size, dtype=torch.int64)
        self._tensors[size] = tensor
        if len(self._tensors) > _SIZES_KEPT:
            del self._tensors[next(iter(self._tensors))]
        return tensor

    @classmethod
    def open(cls, store: Any, rank: int, size: int, timeout: timedelta, fraction: int) -> "GlooReducer":
        """Make the group. All ranks call it."""
        return cls(dist.ProcessGroupGloo(store, rank, size, timeout), fraction)

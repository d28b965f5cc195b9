"""What a collective of the process group returns: a `Work` that is done when the collective is."""

from collections import deque
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["CollectiveWork", "to_torch_future"]


def to_torch_future(done: "Future[Any]", value: Any) -> "torch.futures.Future[Any]":
    """Return a future of torch that has a value when another future is done, or its error.

    Parameters
    ----------
    done : concurrent.futures.Future
        The collective.
    value : object
        Tensors that hold the result then.
    """
    finished: torch.futures.Future[None] = torch.futures.Future()
    done.add_done_callback(lambda _: finished.set_result(None))

    def result_or_error(_: Any) -> Any:
        done.result()
        return value

    # An error that `then` raises is one for C++, too. DistributedDataParallel takes `set_exception` for a tensor
    return finished.then(result_or_error)


class CollectiveWork(dist._Work):  # the base class of Work objects in Python; torch exports no other name for it
    """A collective that runs, or has run.

    torch can hold the C++ half alone, which knows no end of the collective: `wait` would never return.
    `DistributedDataParallel.join` does so from the forward to the backward pass, with a count of one element. Such a
    work is kept when the program drops it before anything waits for it. A work that torch makes of a future needs no
    such care, but its `wait` returns without a word if the collective has failed, and knows no time-out.

    Parameters
    ----------
    done : concurrent.futures.Future
        The collective.
    outputs : list of Tensor
        The tensors that hold its result.
    """

    _kept: ClassVar["deque[CollectiveWork]"] = deque(maxlen=64)
    """The last works of one element that were dropped before anything waited for them."""

    def __init__(self, done: "Future[Any]", outputs: list[Any]) -> None:
        super().__init__()
        self._done, self._future = done, to_torch_future(done, outputs)
        self._may_be_kept = [isinstance(output, Tensor) and output.numel() for output in outputs] == [1]

    def __del__(self) -> None:
        """Keep a work that C++ may still hold. Python calls this once for each object."""
        if getattr(self, "_may_be_kept", False):
            self._kept.append(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the collective. Raises its error, or TimeoutError after `timeout`."""
        self._may_be_kept = False
        seconds = timeout.total_seconds() if timeout else 0
        self._done.result(seconds or None)
        self._future.wait()  # C++ reads its value next. It is set after `_done` has woken this thread
        return True

    def is_completed(self) -> bool:
        """Return True if the collective has ended."""
        return self._done.done()

    def is_success(self) -> bool:
        """Return True if the collective has ended without an error."""
        return self._done.done() and self._done.exception() is None

    def exception(self) -> BaseException | None:
        """Return the error of the collective."""
        return self._done.exception() if self._done.done() else None

    def get_future(self) -> "torch.futures.Future[Any]":
        """Return a future of torch with the tensors of the result."""
        return self._future

"""Mistakes in what is passed to a collective."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.mistakes.stage import Mistake, Player, play

__all__ = ["MISTAKES"]


def _each(*calls: Callable[[Any], Any]) -> str:
    """Rank r makes the r-th call, with its worker."""

    def part(rank: int, call: Callable[[Any], Any]) -> Callable[[Player], None]:
        def run(player: Player) -> None:
            with player.join(world=len(calls), rank=rank) as worker:
                call(worker)

        return run

    return play(*(part(rank, call) for rank, call in enumerate(calls)))


def _passed(value: Any) -> str:
    """All of two workers pass this to `allreduce`."""
    return _each(*[lambda worker: worker.allreduce(value)] * 2)


def _one_bad(number: float) -> str:
    """Rank 1 sums a number that the job does not take."""
    return _each(
        lambda worker: worker.allreduce(np.ones(1000, np.float32)),
        lambda worker: worker.allreduce(np.full(1000, number, np.float32)),
    )


def _read_only() -> np.ndarray:
    array = np.ones(1000, np.float32)
    array.flags.writeable = False
    return array


class Tensor:
    """Behaves like a torch.Tensor, where torch need not be installed."""

    __module__ = "torch"
    device, requires_grad, dtype = "cpu", False, "torch.float32"

    def detach(self) -> None: ...

    def numpy(self) -> None: ...


def _after_leaving(worker: Any) -> None:
    worker.close()
    worker.allreduce(np.ones(1000, np.float32))


MISTAKES = [
    Mistake(
        "Passed a torch tensor: `worker.allreduce(tensor)`",
        lambda: _passed(Tensor()),
        "`worker.allreduce(tensor.numpy())` sums in the memory of the tensor.",
    ),
    Mistake(
        "Passed a list: `worker.allreduce([1.0, 2.0])`",
        lambda: _passed([1.0, 2.0]),
        "`array = numpy.array([1.0, 2.0], numpy.float32)`, then `worker.allreduce(array)`: the result is in `array`.",
    ),
    Mistake(
        "Passed float64, numpy's default: `worker.allreduce(numpy.zeros(1000))`",
        lambda: _passed(np.zeros(1000)),
        "Make the array as float32: `numpy.zeros(1000, numpy.float32)`.",
    ),
    Mistake(
        "Passed an array that is read-only", lambda: _passed(_read_only()), "Pass a copy, and read the result there."
    ),
    Mistake(
        "Passed arrays of different sizes: 1,000 elements at one worker, 2,000 at another",
        lambda: _each(
            lambda worker: worker.allreduce(np.ones(1000, np.float32)),
            lambda worker: worker.allreduce(np.ones(2000, np.float32)),
        ),
        "Pass the same number of elements on all workers. Print `array.size` on each.",
    ),
    Mistake(
        "Passed float32 at one worker, int32 at another",
        lambda: _each(
            lambda worker: worker.allreduce(np.ones(1000, np.float32)),
            lambda worker: worker.allreduce(np.ones(1000, np.int32)),
        ),
        "Pass the same type on all workers. Print `array.dtype` on each.",
    ),
    Mistake(
        "Called collectives in another order: one worker `broadcast`, the other `allreduce`",
        lambda: _each(
            lambda worker: worker.broadcast(np.ones(1000, np.float32)),
            lambda worker: worker.allreduce(np.ones(1000, np.float32)),
        ),
        "All workers call the same collectives in the same order. A call within `if rank == 0` is the usual cause.",
    ),
    Mistake(
        "A gradient held NaN",
        lambda: _one_bad(np.nan),
        "Find out why the worker diverges: `numpy.isfinite(gradient).all()` before the sum.",
    ),
    Mistake(
        "A gradient held a number of 16384 or more",
        lambda: _one_bad(20000.0),
        "Clip the gradient, or give all workers a smaller `fraction`: `fraction=34` takes numbers below 2^24.",
    ),
    Mistake(
        "Used a worker after `close`, or after its `with` block", lambda: _each(_after_leaving), "Make a new `Worker`."
    ),
]

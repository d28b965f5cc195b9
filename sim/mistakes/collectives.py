"""Mistakes in the arguments and in the order of collectives."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.mistakes.scenario import Mistake, Process, run_scenario

__all__ = ["MISTAKES"]


def _each(*calls: Callable[[Any], Any]) -> str:
    """Let rank r make the r-th call, with its worker."""

    def program(rank: int, call: Callable[[Any], Any]) -> Callable[[Process], None]:
        def run(process: Process) -> None:
            with process.join(world=len(calls), rank=rank) as worker:
                call(worker)

        return run

    return run_scenario(*(program(rank, call) for rank, call in enumerate(calls)))


def _passed(value: Any) -> str:
    """Let two workers pass a value to `allreduce`."""
    return _each(*[lambda worker: worker.allreduce(value)] * 2)


def _one_rejected(number: float) -> str:
    """Let rank 1 sum an element that the job rejects."""
    return _each(
        lambda worker: worker.allreduce(np.ones(1000, np.float32)),
        lambda worker: worker.allreduce(np.full(1000, number, np.float32)),
    )


def _read_only() -> np.ndarray:
    array = np.ones(1000, np.float32)
    array.flags.writeable = False
    return array


class Tensor:
    """Behaves like a torch.Tensor. torch need not be installed."""

    __module__ = "torch"
    device, requires_grad, dtype = "cuda:0", False, "torch.float32"

    def detach(self) -> None: ...

    def numpy(self) -> None: ...


def _after_close(worker: Any) -> None:
    worker.close()
    worker.allreduce(np.ones(1000, np.float32))


MISTAKES = [
    Mistake(
        "Passed a tensor of a GPU: `worker.allreduce(tensor)`",
        lambda: _passed(Tensor()),
        "A tensor on the CPU is summed in its own memory; one on a GPU needs a copy there and back.",
    ),
    Mistake(
        "Passed a list: `worker.allreduce([1.0, 2.0])`",
        lambda: _passed([1.0, 2.0]),
        "`array = numpy.array([1.0, 2.0], numpy.float32)`, then `worker.allreduce(array)`: the result is in `array`.",
    ),
    Mistake(
        "Passed the gradient of a parameter that took no part in the loss: `[p.grad for p in model.parameters()]`",
        lambda: _passed([np.ones(10, np.float32), None]),
        "`p.grad = torch.zeros_like(p)` where it is None. `iswitch.torch.distribute` and DistributedDataParallel with "
        "`find_unused_parameters=True` do that.",
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
        lambda: _one_rejected(np.nan),
        "Find out why the worker diverges: `numpy.isfinite(gradient).all()` before the sum.",
    ),
    Mistake(
        "A gradient held an element of 16384 or more",
        lambda: _one_rejected(20000.0),
        "Clip the gradient, or give all workers a smaller `fraction`: `fraction=34` admits elements below 2^24.",
    ),
    Mistake(
        "Used a worker after `close`, or after its `with` block", lambda: _each(_after_close), "Make a new `Worker`."
    ),
]

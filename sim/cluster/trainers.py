"""The programs of workers that train in virtual time.

The workers train synchronously or asynchronously at the switch, or asynchronously at a parameter server. The
gradients and the driver are real. The parameter server is a model.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

from examples import async_ppo, ppo
from examples.common.progress import Progress, SimulateCompute
from examples.ppo import Options
from iswitch import AsyncWorker, Worker
from iswitch.estimate.costs import Costs as HostCosts
from sim.cluster.modelled_server import ModelledServer, ServerWorker
from sim.cluster.training_costs import RATE_BPS
from sim.cluster.training_outcome import Outcome, Point
from sim.emulator.program import Program

__all__ = [
    "SERVERS",
    "TRAINERS",
    "MakeTrainer",
    "Trainer",
    "half",
    "make_asynchronous",
    "make_at_server",
    "make_synchronous",
    "train_async",
]

Trainer = Callable[[Program, int, Options, SimulateCompute], Outcome]
"""A worker's program: `trainer(program, rank, options, simulate_compute)`."""
MakeTrainer = Callable[[Options], Trainer]
"""Returns the trainer of all workers of one training."""


class Curve:
    """Collects a worker's reports as points of a learning curve."""

    def __init__(self, program: Program) -> None:
        self.program, self.points = program, list[Point]()

    def add(self, progress: Progress) -> None:
        """Add a report."""
        self.points.append(Point(self.program.now(), progress.steps, progress.mean_return))


def train_sync(program: Program, rank: int, options: Options, simulate_compute: SimulateCompute) -> Outcome:
    """Train synchronously: each update is the mean of all workers' gradients."""
    with Worker(world=options.workers, rank=rank, transport=program.transport()) as worker:
        start_s, curve = program.now(), Curve(program)
        result = ppo.train(worker, rank, options, curve.add, simulate_compute)
        last = result.curve[-1]
        return Outcome(
            start_s,
            program.now(),
            last.mean_return,
            last.update * options.epochs * options.num_minibatches,
            last.steps,
            result.weights,
            result.weights_sha256,
            curve.points,
        )


def train_async(
    program: Program,
    rank: int,
    options: Options,
    simulate_compute: SimulateCompute,
    *,
    threshold: int = 0,
    staleness: int = 3,
) -> Outcome:
    """Train asynchronously: each update is the mean of the gradients that are ready first.

    Each worker normalizes its own advantages. All other hyperparameters are those of `train_sync`.

    Parameters
    ----------
    program, rank, options, simulate_compute
        As in `Trainer`.
    threshold : int
        Gradients in an update; 0 is half as many as workers.
    staleness : int
        Most updates between a gradient's weights and its own update.
    """
    with AsyncWorker(
        world=options.workers,
        rank=rank,
        size=async_ppo.vector_size(options),
        threshold=threshold or half(options.workers),
        staleness=staleness,
        transport=program.transport(),
    ) as worker:
        return train_worker(worker, program, rank, options, simulate_compute)


def train_worker(
    worker: AsyncWorker, program: Program, rank: int, options: Options, simulate_compute: SimulateCompute
) -> Outcome:
    """Train asynchronously with a worker."""
    start_s, curve = program.now(), Curve(program)
    result = async_ppo.train(worker, rank, options, curve.add, simulate_compute=simulate_compute, clock=program.now)
    last = result.curve[-1]
    return Outcome(
        start_s,
        program.now(),
        last.mean_return,
        last.update,
        last.steps,
        result.weights,
        result.weights_sha256,
        curve.points,
    )


def train_at_server(
    program: Program,
    rank: int,
    options: Options,
    simulate_compute: SimulateCompute,
    *,
    server: ModelledServer,
    overlapped: bool,
) -> Outcome:
    """Train asynchronously at a parameter server: each gradient is an update as soon as the server has received the
    gradient.

    Parameters
    ----------
    program, rank, options, simulate_compute
        As in `Trainer`.
    server : ModelledServer
        The server of all workers of this training.
    overlapped : bool
        As in `ServerWorker`.
    """
    worker = ServerWorker(server, program, overlapped=overlapped)
    return train_worker(cast(AsyncWorker, worker), program, rank, options, simulate_compute)


def make_synchronous(options: Options) -> Trainer:
    """Return the trainer of one synchronous training."""
    return train_sync


def make_asynchronous(options: Options, *, threshold: int = 0, staleness: int = 3) -> Trainer:
    """Return the trainer of one asynchronous training, with `threshold` and `staleness` of `train_async`."""
    return partial(train_async, threshold=threshold, staleness=staleness)


def make_at_server(options: Options, *, overlapped: bool) -> Trainer:
    """Return the trainer of one training at a parameter server."""
    size_bytes = 4 * async_ppo.vector_size(options)
    server = ModelledServer(size_bytes=size_bytes, costs=HostCosts(), rate_bps=RATE_BPS)
    return partial(train_at_server, server=server, overlapped=overlapped)


def half(workers: int) -> int:
    """Return half of the workers, rounded up."""
    return -(-workers // 2)


TRAINERS: dict[str, Trainer] = {"synchronous": train_sync, "asynchronous": train_async}
"""Trainers at the switch."""
SERVERS: dict[str, MakeTrainer] = {
    "server": partial(make_at_server, overlapped=False),
    "overlapped server": partial(make_at_server, overlapped=True),
}
"""Trainers at a parameter server, whose workers wait for the weights or compute meanwhile."""

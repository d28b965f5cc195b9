"""Virtual seconds until distributed training has learned a task, for trainers at the switch and at a parameter server.

Drivers, trainers and gradients are real, and the switch is compiled; the time is virtual. A step of an environment and
a gradient take the times of `Costs`. Hosts and cables take the times of `iswitch.estimate.costs`, and the switch takes
those of the RTL. So the figures do not depend on the machine that computes them, and the same seeds give the same
figures.

The same workers also train asynchronously at a parameter server, which is a model with the same hosts and cables.

All trainings of a task have the same options, environments and initial weights, and the same work takes the same time.
They stop by the same rule: after every `epochs` * `num_minibatches` optimizer steps they check if the latest
`solved_episodes` episodes of all workers have a mean return of at least `solved_return`.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import torch
import typer
from rich.console import Console
from rich.table import Table

from examples import async_ppo, ppo
from examples.common.progress import Progress, SimulateCompute
from examples.common.replica import Vector
from examples.ppo import Options
from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from iswitch.estimate.costs import Costs as HostCosts
from sim.cluster.modelled_server import ModelledServer, ServerWorker
from sim.cluster.rtl_sum import machine_of
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program

__all__ = [
    "SERVERS",
    "TRAINERS",
    "Costs",
    "GradientUs",
    "MakeTrainer",
    "Outcome",
    "Point",
    "Row",
    "Seeds",
    "Slowdown",
    "StepUs",
    "Task",
    "Workers",
    "compare",
    "format_seconds",
    "half",
    "make_asynchronous",
    "make_at_server",
    "make_synchronous",
    "measure",
    "median_s",
    "train_async",
]

RATE_BPS = 10e9

Seeds = Annotated[int, typer.Option(min=1, help="Trainings of each kind, with the seeds 1, 2, ...")]
Workers = Annotated[int, typer.Option(min=1, max=Config().ports, help="Number of workers.")]
StepUs = Annotated[float, typer.Option(help="Microseconds for a step of an environment.")]
GradientUs = Annotated[float, typer.Option(help="Microseconds for the gradient of a minibatch.")]
Slowdown = Annotated[float, typer.Option(help="Factor of both for the last worker.")]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned.

    Parameters
    ----------
    options : Options
        The options of all trainings, without workers and seed.
    results : Path
        File in JSON for the results.
    """

    options: Options
    results: Path


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times of computing.

    Parameters
    ----------
    step_us, gradient_us : float
        Microseconds for a step of one environment, and for the gradient of a minibatch.
    slowdown : float
        Factor of both for the last worker.
    """

    step_us: float = 50.0
    gradient_us: float = 2000.0
    slowdown: float = 5.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"Costs {name} must be above 0, not {value!r}")

    def simulate_on(self, program: Program, *, slow: bool) -> SimulateCompute:
        """Return a function that lets the time of environment steps and of one gradient pass in a program."""
        factor = self.slowdown if slow else 1.0
        return lambda steps: program.sleep((steps * self.step_us + self.gradient_us) * factor / 1e6)


class Point(NamedTuple):
    """A point of a learning curve.

    Parameters
    ----------
    seconds : float
        Virtual seconds since the first worker's first step.
    steps : int
        Environment steps of all workers so far.
    mean_return : float
        Mean return of the latest `solved_episodes` episodes of all workers.
    """

    seconds: float
    steps: int
    mean_return: float


class Outcome(NamedTuple):
    """The outcome of one worker.

    Parameters
    ----------
    start_s, end_s : float
        Virtual times of the first step and of the end.
    mean_return : float
        Mean return of the latest `solved_episodes` episodes of all workers at the end.
    updates : int
        Optimizer steps.
    steps : int
        Environment steps of all workers.
    weights, weights_sha256 : Vector, str
        The final weights, and the SHA-256 of their bytes.
    curve : list of Point
        The learning curve, whose seconds are virtual times, as `start_s` is.
    """

    start_s: float
    end_s: float
    mean_return: float
    updates: int
    steps: int
    weights: Vector
    weights_sha256: str
    curve: list[Point]


@dataclass(frozen=True)
class Row:
    """The outcome of one training.

    Parameters
    ----------
    seed : int
        Seed of the training.
    solved : bool
        True if the mean return reached `solved_return`.
    seconds : float
        Virtual seconds from the first worker's first step to the last worker's end, solved or not.
    mean_return, updates, steps, weights_sha256
        As in `Outcome`.
    greedy_return : float
        Mean return of the evaluation of the final weights.
    curve : list of Point
        The learning curve.
    """

    seed: int
    solved: bool
    seconds: float
    mean_return: float
    updates: int
    steps: int
    greedy_return: float
    weights_sha256: str
    curve: list[Point] = field(default_factory=list, repr=False)


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


def measure(trainer: Trainer, options: Options, costs: Costs, machine: Machine) -> Row:
    """Run one training, with each worker at its own port of one switch.

    Raises
    ------
    RuntimeError
        If the workers end with different weights.
    """
    with Board(Config(), seed=options.seed) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric, seed=options.seed)
        for rank in range(options.workers):
            program = lambda program, rank=rank: trainer(
                program, rank, options, costs.simulate_on(program, slow=rank == options.workers - 1)
            )
            cluster.add((0, rank), program, name=f"worker {rank}", machine=machine)
        cluster.run()
    outcomes: list[Outcome] = [program.result for program in cluster.programs]
    if len({outcome.weights_sha256 for outcome in outcomes}) != 1:
        raise RuntimeError("the workers' weights differ, so they received different sums")
    first = outcomes[0]
    start_s = min(outcome.start_s for outcome in outcomes)
    return Row(
        seed=options.seed,
        solved=first.mean_return >= options.solved_return,
        seconds=max(outcome.end_s for outcome in outcomes) - start_s,
        mean_return=first.mean_return,
        updates=first.updates,
        steps=first.steps,
        greedy_return=statistics.mean(ppo.evaluate(first.weights, options)),
        weights_sha256=first.weights_sha256,
        curve=[point._replace(seconds=point.seconds - start_s) for point in first.curve],
    )


def median_s(rows: list[Row]) -> float | None:
    """Return the median of the seconds, or None if at least half of the trainings did not solve the environment."""
    median = statistics.median_high(row.seconds if row.solved else math.inf for row in rows)
    return None if median == math.inf else median


def format_seconds(seconds: float | None) -> str:
    """Return the text of a table's cell."""
    return "never" if seconds is None else f"{seconds:.3f}"


def one_thread() -> None:
    """Let torch compute with one thread: the gradients are small, and one thread adds in a fixed order."""
    torch.set_num_threads(1)


def train(costs: Costs, machine: Machine, make_trainer: MakeTrainer, options: Options) -> Row:
    """Run one training with a trainer of its own."""
    return measure(make_trainer(options), options, costs, machine)


def train_all(
    costs: Costs, machine: Machine, trainings: list[tuple[MakeTrainer, Options]], processes: int
) -> Iterator[Row]:
    """Yield the outcomes of the trainings in their order, some of which run at once in processes of their own."""
    run = partial(train, costs, machine)
    if processes == 1:
        one_thread()
        yield from map(run, *zip(*trainings, strict=True))
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=one_thread) as pool:
        yield from pool.map(run, *zip(*trainings, strict=True))


def compare(
    task: Task,
    make_trainers: dict[str, MakeTrainer],
    costs: Costs,
    *,
    seeds: int,
    workers: int,
    notes: dict[str, Any],
    processes: int = 1,
) -> dict[str, list[Row]]:
    """Run trainings, print a table of their times, and write the results.

    Parameters
    ----------
    task : Task
        What is learned.
    make_trainers : dict of MakeTrainer
        What is compared, by name.
    costs : Costs
        Times of computing.
    seeds : int
        Trainings of each, with the seeds 1, 2, ...
    workers : int
        Number of workers.
    notes : dict
        Further items of the results.
    processes : int
        Trainings that run at once.

    Returns
    -------
    dict of list of Row
        The outcomes by name, in the order of the seeds.
    """
    console, machine = Console(), machine_of(HostCosts(), rate_bps=RATE_BPS)
    trainings = [
        (make_trainer, replace(task.options, workers=workers, seed=seed))
        for make_trainer in make_trainers.values()
        for seed in range(1, seeds + 1)
    ]
    outcomes = train_all(costs, machine, trainings, processes)
    results: dict[str, Any] = {
        "costs": asdict(costs),
        "machine": asdict(machine),
        "options": asdict(replace(task.options, workers=workers)),
        **notes,
        "trainers": {},
    }
    found: dict[str, list[Row]] = {}
    for name in make_trainers:
        rows = found[name] = []
        for row in islice(outcomes, seeds):
            rows.append(row)
            console.print(f"[dim]{name}, seed {row.seed}: {row}", highlight=False)
            results["trainers"][name] = {"median_s": median_s(rows), "trainings": [asdict(row) for row in rows]}
            task.results.parent.mkdir(parents=True, exist_ok=True)
            task.results.write_text(json.dumps(results, indent=1) + "\n")
    speeds = "all equally fast" if costs.slowdown == 1 else f"one {costs.slowdown:g} times as slow"
    title = f"virtual seconds to a mean return of {task.options.solved_return:g}, {workers} workers, {speeds}"
    table = Table("seed", *found, title=title)
    columns = [
        [
            *(format_seconds(row.seconds if row.solved else None) for row in rows),
            format_seconds(median_s(rows)),
            str(statistics.median_high(row.updates for row in rows)),
        ]
        for rows in found.values()
    ]
    for label, *cells in zip([*map(str, range(1, seeds + 1)), "median", "median of updates"], *columns):
        table.add_row(label, *cells)
    console.print(table)
    return found

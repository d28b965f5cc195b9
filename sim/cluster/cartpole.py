"""`make cartpole-time`: virtual seconds until distributed training solves CartPole, with one slow worker.

It prints a table and writes `build/timing.json`. Drivers, trainers and gradients are real, and the switch is compiled;
the time is virtual. A step of an environment and a gradient take the times of `Costs`, several times longer on one
worker. Hosts and cables take the times of `iswitch.estimate.costs`, and the switch takes those of the RTL. So the
figures do not depend on the machine that computes them, and the same seeds give the same figures.

The same workers also train asynchronously at a parameter server, which is a model with the same hosts and cables.

All trainings have the same options, environments and initial weights, and the same work takes the same time. They stop
by the same rule: after every `epochs` * `num_minibatches` optimizer steps they check if the latest `solved_episodes`
episodes of all workers have a mean return of at least `solved_return`.
"""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import torch
import typer
from rich.console import Console
from rich.table import Table

from examples import async_ppo, ppo
from examples.common.progress import SimulateCompute
from examples.common.replica import Vector
from examples.ppo import Options
from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from iswitch.estimate.costs import Costs as HostCosts
from iswitch.wire import STALENESS_MAX
from sim.cluster.modelled_server import ModelledServer, ServerWorker
from sim.cluster.rtl_sum import machine_of
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program

__all__ = ["TRAINERS", "Costs", "Outcome", "Row", "median_s", "measure", "train_async"]

OUT = Path(__file__).parents[2] / "build" / "timing.json"
RATE_BPS = 10e9
OPTIONS = Options(solved_return=450.0, solved_episodes=20)
"""The options of all trainings, without workers and seed."""


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
    """

    start_s: float
    end_s: float
    mean_return: float
    updates: int
    steps: int
    weights: Vector
    weights_sha256: str


class Row(NamedTuple):
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
    """

    seed: int
    solved: bool
    seconds: float
    mean_return: float
    updates: int
    steps: int
    greedy_return: float
    weights_sha256: str


Trainer = Callable[[Program, int, Options, SimulateCompute], Outcome]
"""A worker's program: `trainer(program, rank, options, simulate_compute)`."""


def train_sync(program: Program, rank: int, options: Options, simulate_compute: SimulateCompute) -> Outcome:
    """Train synchronously: each update is the mean of all workers' gradients."""
    with Worker(world=options.workers, rank=rank, transport=program.transport()) as worker:
        start_s = program.now()
        result = ppo.train(worker, rank, options, simulate_compute=simulate_compute)
        last = result.curve[-1]
        return Outcome(
            start_s,
            program.now(),
            last.mean_return,
            last.update * options.epochs * options.num_minibatches,
            last.steps,
            result.weights,
            result.weights_sha256,
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
    start_s = program.now()
    result = async_ppo.train(worker, rank, options, simulate_compute=simulate_compute, clock=program.now)
    last = result.curve[-1]
    return Outcome(
        start_s, program.now(), last.mean_return, last.update, last.steps, result.weights, result.weights_sha256
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


def server_trainer(options: Options, *, overlapped: bool) -> Trainer:
    """Return the trainer of one training at a parameter server."""
    size_bytes = 4 * async_ppo.vector_size(options)
    server = ModelledServer(size_bytes=size_bytes, costs=HostCosts(), rate_bps=RATE_BPS)
    return partial(train_at_server, server=server, overlapped=overlapped)


def half(workers: int) -> int:
    """Return half of the workers, rounded up."""
    return -(-workers // 2)


TRAINERS: dict[str, Trainer] = {"synchronous": train_sync, "asynchronous": train_async}
"""Trainers at the switch."""
SERVERS = {"server": False, "overlapped server": True}
"""Trainers at a parameter server, and if they compute while they wait for weights."""


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
    return Row(
        seed=options.seed,
        solved=first.mean_return >= options.solved_return,
        seconds=max(outcome.end_s for outcome in outcomes) - min(outcome.start_s for outcome in outcomes),
        mean_return=first.mean_return,
        updates=first.updates,
        steps=first.steps,
        greedy_return=statistics.mean(ppo.evaluate(first.weights, options)),
        weights_sha256=first.weights_sha256,
    )


def median_s(rows: list[Row]) -> float | None:
    """Return the median of the seconds, or None if at least half of the trainings did not solve the environment."""
    median = statistics.median_high(row.seconds if row.solved else math.inf for row in rows)
    return None if median == math.inf else median


def format_seconds(seconds: float | None) -> str:
    """Return the text of a table's cell."""
    return "never" if seconds is None else f"{seconds:.3f}"


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each kind, with the seeds 1, 2, ...")] = 5,
    workers: Annotated[int, typer.Option(min=1, max=Config().ports, help="Number of workers.")] = 4,
    step_us: Annotated[float, typer.Option(help="Microseconds for a step of an environment.")] = Costs.step_us,
    gradient_us: Annotated[
        float, typer.Option(help="Microseconds for the gradient of a minibatch.")
    ] = Costs.gradient_us,
    slowdown: Annotated[float, typer.Option(help="Factor of both for the last worker.")] = Costs.slowdown,
    threshold: Annotated[
        int, typer.Option(min=0, help="Asynchronous: gradients in an update; 0: half as many as workers.")
    ] = 0,
    staleness: Annotated[
        int,
        typer.Option(
            min=0, max=STALENESS_MAX, help="Asynchronous: most updates between a gradient's weights and its own update."
        ),
    ] = 3,
    only: Annotated[str, typer.Option(help=f"One of {', '.join([*TRAINERS, *SERVERS])}.")] = "",
) -> None:
    """Measure the virtual seconds until CartPole is solved."""
    make_trainers: dict[str, Callable[[Options], Trainer]] = {
        "synchronous": lambda _: train_sync,
        "asynchronous": lambda _: partial(train_async, threshold=threshold, staleness=staleness),
        **{name: partial(server_trainer, overlapped=overlapped) for name, overlapped in SERVERS.items()},
    }
    if only and only not in make_trainers:
        raise typer.BadParameter(f"only must be one of {', '.join(make_trainers)}, not {only!r}")
    torch.set_num_threads(1)  # the gradients are small, and one thread adds in a fixed order
    console, costs = Console(), Costs(step_us=step_us, gradient_us=gradient_us, slowdown=slowdown)
    machine = machine_of(HostCosts(), rate_bps=RATE_BPS)
    results: dict[str, Any] = {
        "costs": asdict(costs),
        "machine": asdict(machine),
        "options": asdict(replace(OPTIONS, workers=workers)),
        "asynchronous": {"threshold": threshold or half(workers), "staleness": staleness},
        "trainers": {},
    }
    names, columns = [only] if only else list(make_trainers), list[list[str]]()
    for name in names:
        rows: list[Row] = []
        for seed in range(1, seeds + 1):
            options = replace(OPTIONS, workers=workers, seed=seed)
            rows.append(measure(make_trainers[name](options), options, costs, machine))
            console.print(f"[dim]{name}, seed {seed}: {rows[-1]}", highlight=False)
            results["trainers"][name] = {"median_s": median_s(rows), "trainings": [row._asdict() for row in rows]}
            OUT.parent.mkdir(parents=True, exist_ok=True)
            OUT.write_text(json.dumps(results, indent=1) + "\n")
        columns.append(
            [
                *(format_seconds(row.seconds if row.solved else None) for row in rows),
                format_seconds(median_s(rows)),
                str(statistics.median_high(row.updates for row in rows)),
            ]
        )
    speeds = "all equally fast" if slowdown == 1 else f"one {slowdown:g} times as slow"
    title = f"virtual seconds to a mean return of {OPTIONS.solved_return:g}, {workers} workers, {speeds}"
    table = Table("seed", *names, title=title)
    for label, *cells in zip([*map(str, range(1, seeds + 1)), "median", "median of updates"], *columns):
        table.add_row(label, *cells)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

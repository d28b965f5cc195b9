"""`make cartpole-time`: how long distributed training of CartPole takes until it plays well, as a table and as
`build/timing.json`.

Real drivers and trainers, real gradients, the compiled switch; the time is virtual. A step of an environment and a
gradient take what is stated here, on one worker several times as much; host, cable and switch take what `Machine` and
the RTL say. So the figures do not depend on the machine that computes them, and the same seeds give the same figures.

All trainings have the same options, games and initial weights, let the same time pass for the same work, and end by the
same rule: after every `epochs` * `num_minibatches` optimizer steps they check whether the latest `solved_episodes`
episodes of all workers returned `solved_return` on average.
"""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from examples import async_ppo
from examples.common.progress import SimulateCompute
from examples.common.replica import Vector
from examples.ppo import Options, evaluate, train
from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from iswitch.wire import STALENESS_MAX
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program

__all__ = ["TRAINERS", "Costs", "Outcome", "Row", "measure"]

OUT = Path(__file__).parents[2] / "build" / "timing.json"
OPTIONS = Options(solved_return=450.0, solved_episodes=20)
"""The options of all trainings but for workers and seed."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What computing takes: a step of one environment, and the gradient of a minibatch. The last worker takes
    `slowdown` times as long."""

    step_us: float = 50.0
    gradient_us: float = 2000.0
    slowdown: float = 5.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"Costs {name} must be above 0, not {value!r}")

    def pace(self, program: Program, slow: bool) -> SimulateCompute:
        """Lets the time of a worker's environments and of a gradient pass."""
        factor = self.slowdown if slow else 1.0
        return lambda steps: program.sleep((steps * self.step_us + self.gradient_us) * factor / 1e6)


class Outcome(NamedTuple):
    """Of one worker. begun_s, ended_s: virtual times of its first step and of the end, when the latest
    `solved_episodes` of all workers returned `mean_return`, or all steps were done. updates: optimizer steps. steps:
    those of all workers' environments."""

    begun_s: float
    ended_s: float
    mean_return: float
    updates: int
    steps: int
    weights: Vector
    weights_sha256: str


class Row(NamedTuple):
    """Of one training. seconds: virtual ones from the first worker's first step to the last one's end, whether the
    return was reached or not. greedy_return: mean of episodes that nobody has trained on, with the final weights."""

    seed: int
    reached: bool
    seconds: float
    mean_return: float
    updates: int
    steps: int
    greedy_return: float
    weights_sha256: str


Trainer = Callable[[Program, int, Options, SimulateCompute], Outcome]
"""A worker's program, given its rank. With the same options all trainers have the same learner and hyperparameters."""


def synchronous(program: Program, rank: int, options: Options, simulate_compute: SimulateCompute) -> Outcome:
    """Each gradient is the mean of all workers'."""
    with Worker(world=options.workers, rank=rank, transport=program.transport()) as worker:
        begun_s = program.now()
        result = train(worker, rank, options, simulate_compute=simulate_compute)
        last = result.curve[-1]
        return Outcome(
            begun_s,
            program.now(),
            last.mean_return,
            last.update * options.epochs * options.num_minibatches,
            last.steps,
            result.weights,
            result.weights_sha256,
        )


def asynchronous(
    program: Program,
    rank: int,
    options: Options,
    simulate_compute: SimulateCompute,
    *,
    threshold: int = 0,
    staleness: int = 3,
) -> Outcome:
    """Each gradient is the mean of those of the `threshold` workers that were ready first, 0: of half of all; none is
    of weights that are more than `staleness` updates older. Each worker normalises its advantages for itself; else the
    hyperparameters are the same."""
    with AsyncWorker(
        world=options.workers,
        rank=rank,
        size=async_ppo.vector_size(options),
        threshold=threshold or half(options.workers),
        staleness=staleness,
        transport=program.transport(),
    ) as worker:
        begun_s = program.now()
        result = async_ppo.train(worker, rank, options, simulate_compute=simulate_compute, clock=program.now)
        last = result.curve[-1]
        return Outcome(
            begun_s, program.now(), last.mean_return, last.update, last.steps, result.weights, result.weights_sha256
        )


def half(workers: int) -> int:
    return -(-workers // 2)


TRAINERS: dict[str, Trainer] = {"synchronous": synchronous, "asynchronous": asynchronous}


def measure(trainer: Trainer, options: Options, costs: Costs, machine: Machine) -> Row:
    """One training, each worker at a port of its own. RuntimeError if the weights are not the same everywhere."""
    with Board(Config(), seed=options.seed) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric, seed=options.seed)
        for rank in range(options.workers):
            program = lambda program, rank=rank: trainer(
                program, rank, options, costs.pace(program, rank == options.workers - 1)
            )
            cluster.add((0, rank), program, name=f"worker {rank}", machine=machine)
        cluster.run()
    outcomes: list[Outcome] = [program.result for program in cluster.programs]
    if len({outcome.weights_sha256 for outcome in outcomes}) != 1:
        raise RuntimeError("the workers' weights differ, so they were not given the same sums")
    seconds = max(outcome.ended_s for outcome in outcomes) - min(outcome.begun_s for outcome in outcomes)
    _, _, mean_return, updates, steps, weights, digest = outcomes[0]
    greedy_return = statistics.mean(evaluate(weights, options))
    return Row(
        options.seed, mean_return >= options.solved_return, seconds, mean_return, updates, steps, greedy_return, digest
    )


def median_s(rows: list[Row]) -> float | None:
    """None if more than half did not get there."""
    median = statistics.median_high(row.seconds if row.reached else math.inf for row in rows)
    return None if median == math.inf else median


def shown(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.3f}"


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each kind, with the seeds 1, 2, ...")] = 5,
    workers: Annotated[int, typer.Option(min=1, max=Config().ports)] = 4,
    step_us: Annotated[float, typer.Option(help="A step of an environment.")] = Costs.step_us,
    gradient_us: Annotated[float, typer.Option(help="A gradient of a minibatch.")] = Costs.gradient_us,
    slowdown: Annotated[
        float, typer.Option(help="How many times as long the last worker takes for both.")
    ] = Costs.slowdown,
    threshold: Annotated[
        int, typer.Option(min=0, help="Asynchronous: vectors in an update; 0: half as many as workers.")
    ] = 0,
    staleness: Annotated[
        int,
        typer.Option(min=0, max=STALENESS_MAX, help="Asynchronous: updates between a vector's weights and its own."),
    ] = 3,
    only: Annotated[str, typer.Option(help=f"One of {', '.join(TRAINERS)}.")] = "",
) -> None:
    """Virtual seconds until CartPole is played well."""
    if only and only not in TRAINERS:
        raise typer.BadParameter(f"only must be one of {', '.join(TRAINERS)}, not {only!r}")
    trainers = TRAINERS | {"asynchronous": partial(asynchronous, threshold=threshold, staleness=staleness)}
    torch.set_num_threads(1)  # the gradients are small, and sums in one thread are the same everywhere
    console, costs, machine = Console(), Costs(step_us=step_us, gradient_us=gradient_us, slowdown=slowdown), Machine()
    found: dict[str, Any] = {
        "costs": asdict(costs),
        "machine": asdict(machine),
        "options": asdict(replace(OPTIONS, workers=workers)),
        "asynchronous": {"threshold": threshold or half(workers), "staleness": staleness},
        "trainers": {},
    }
    table = Table(
        "trainer",
        *(f"seed {seed}" for seed in range(1, seeds + 1)),
        "median s",
        title=f"virtual seconds to a mean return of {OPTIONS.solved_return:g}, {workers} workers, one {slowdown:g} times as slow",
    )
    for name in [only] if only else trainers:
        rows: list[Row] = []
        for seed in range(1, seeds + 1):
            rows.append(measure(trainers[name], replace(OPTIONS, workers=workers, seed=seed), costs, machine))
            console.print(f"[dim]{name}, seed {seed}: {rows[-1]}", highlight=False)
            found["trainers"][name] = {"median_s": median_s(rows), "trainings": [row._asdict() for row in rows]}
            OUT.parent.mkdir(parents=True, exist_ok=True)
            OUT.write_text(json.dumps(found, indent=1) + "\n")
        table.add_row(name, *(shown(row.seconds if row.reached else None) for row in rows), shown(median_s(rows)))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

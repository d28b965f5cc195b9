"""Comparisons of trainers: several seeds each, a table of their virtual seconds, and the results in a file.

What is real in a training and what is modelled: `sim.cluster.training_time`.
"""

import json
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from examples.ppo import Options
from iswitch.config import Config
from iswitch.estimate.costs import Costs as HostCosts
from sim.cluster.rtl_sum import machine_of
from sim.cluster.trainers import MakeTrainer
from sim.cluster.training_costs import RATE_BPS, Costs
from sim.cluster.training_outcome import Row, median_s
from sim.cluster.training_time import measure
from sim.emulator.program import Machine

__all__ = ["Seeds", "Task", "Workers", "compare"]

Seeds = Annotated[int, typer.Option(min=1, help="Trainings of each kind, with the seeds 1, 2, ...")]
Workers = Annotated[int, typer.Option(min=1, max=Config().ports, help="Number of workers.")]


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


def format_seconds(seconds: float | None) -> str:
    """Return the text of a table's cell."""
    return "never" if seconds is None else f"{seconds:.3f}"


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

"""`make cartpole-time`: virtual seconds until distributed training solves CartPole, with one slow worker.

It prints a table and writes `build/timing.json`. What is real and what is modelled: `sim.cluster.training_time`.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from examples.ppo import Options
from iswitch.wire import STALENESS_MAX
from sim.cluster.trainers import SERVERS, TRAINERS, MakeTrainer, half, make_asynchronous, make_synchronous
from sim.cluster.training_comparison import Seeds, Task, Workers, compare
from sim.cluster.training_costs import Costs, GradientUs, Slowdown, StepUs

__all__ = ["TASK"]

TASK = Task(
    options=Options(solved_return=450.0, solved_episodes=20),
    results=Path(__file__).parents[2] / "build" / "timing.json",
)


def main(
    seeds: Seeds = 5,
    workers: Workers = 4,
    step_us: StepUs = Costs.step_us,
    gradient_us: GradientUs = Costs.gradient_us,
    slowdown: Slowdown = Costs.slowdown,
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
    make_trainers: dict[str, MakeTrainer] = {
        "synchronous": make_synchronous,
        "asynchronous": partial(make_asynchronous, threshold=threshold, staleness=staleness),
        **SERVERS,
    }
    if only and only not in make_trainers:
        raise typer.BadParameter(f"only must be one of {', '.join(make_trainers)}, not {only!r}")
    compare(
        TASK,
        {only: make_trainers[only]} if only else make_trainers,
        Costs(step_us=step_us, gradient_us=gradient_us, slowdown=slowdown),
        seeds=seeds,
        workers=workers,
        notes={"asynchronous": {"threshold": threshold or half(workers), "staleness": staleness}},
    )


if __name__ == "__main__":
    typer.run(main)

"""`make breakout-time`: virtual seconds until distributed training plays Breakout well, on an Atari 2600.

It prints a table, draws the mean return over virtual time, and writes `build/breakout_time.json`. What is real and what
is modelled: `sim.cluster.training_time`. All workers are equally fast, and compute as long as those of PPO in
`sim.cluster.headline`. They see the console's memory instead of its screen, so that a small network suffices, whose
gradients are about as large as PPO's in the iSwitch paper.
"""

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import typer
from gymnasium.spaces import Discrete
from rich.console import Console

from examples.common.envs import make_envs, play
from examples.ppo import EVALUATION_SEED, Options
from sim.cluster.trainers import SERVERS, MakeTrainer, make_asynchronous, make_synchronous
from sim.cluster.training_comparison import Seeds, Task, Workers, compare
from sim.cluster.training_costs import Costs, GradientUs, Slowdown, StepUs
from sim.cluster.training_outcome import Row

__all__ = ["MAKE_TRAINERS", "TASK", "draw", "median_row", "random_returns"]

ROOT = Path(__file__).parents[2]
TASK = Task(
    options=Options(
        environment="ALE/Breakout-ram",
        total_steps=60_000,
        num_minibatches=4,
        learning_rate=1e-3,
        gae_lambda=0.95,
        reward_scale=0.5,
        hidden=32,
        solved_return=4.0,
        solved_episodes=40,
        evaluation_episodes=1,
    ),
    results=ROOT / "build" / "breakout_time.json",
)
MAKE_TRAINERS: dict[str, MakeTrainer] = {
    "synchronous": make_synchronous,
    "asynchronous, H = 2": partial(make_asynchronous, threshold=2),
    "asynchronous, H = 1": partial(make_asynchronous, threshold=1),
    **SERVERS,
}
"""What is compared: training at the switch, asynchronously with H gradients in an update, and at a parameter server."""
RANDOM_EPISODES = 40


def random_returns(environment: str, episodes: int) -> list[float]:
    """Return the returns of episodes with random actions."""
    envs, random = make_envs(environment, episodes), np.random.default_rng(1)
    actions = cast(Discrete, envs.single_action_space).n
    return play(envs, lambda obs: random.integers(actions, size=len(obs)), EVALUATION_SEED)


def median_row(rows: list[Row]) -> Row:
    """Return the training with the median time; trainings that did not solve the task took longer than all others."""
    return sorted(rows, key=lambda row: (not row.solved, row.seconds))[len(rows) // 2]


def draw(found: dict[str, list[Row]], options: Options, random_return: float, path: Path) -> None:
    """Draw the mean return over virtual time: a line for each training, and a bold one for each median."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, (name, rows) in enumerate(found.items()):
        label = (
            f"{name if name in SERVERS else f'iswitch, {name}'}: {sum(row.solved for row in rows)} of {len(rows)} good"
        )
        median = median_row(rows)
        for row in rows:
            points = [(point.seconds, point.mean_return) for point in row.curve]
            bold = row is median
            axes.plot(
                *zip(*points, strict=True),
                color=f"C{index}",
                linewidth=2 if bold else 0.7,
                alpha=1 if bold else 0.5,
                label=label if bold else None,
            )
            if row.solved:
                axes.plot(*points[-1], "o", color=f"C{index}", markersize=6 if bold else 3)
    axes.axhline(
        options.solved_return, color="black", linewidth=0.8, linestyle="--", label=f"good: {options.solved_return:g}"
    )
    axes.axhline(random_return, color="gray", linewidth=0.8, linestyle=":", label="random actions")
    axes.set(
        xlabel="virtual seconds",
        ylabel=f"mean return of the latest {options.solved_episodes} episodes",
        title=f"{options.environment}: a line for each seed, the median bold",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(
    seeds: Seeds = 3,
    workers: Workers = 4,
    step_us: StepUs = 0.1,
    gradient_us: GradientUs = 250.0,
    slowdown: Slowdown = 1.0,
    only: Annotated[str, typer.Option(help=f"One of: {'; '.join(MAKE_TRAINERS)}.")] = "",
    total_steps: Annotated[
        int, typer.Option(min=1, help="Environment steps of all workers of a training, at most.")
    ] = TASK.options.total_steps,
    processes: Annotated[int, typer.Option(min=1, help="Trainings that run at once.")] = 1,
    out: Annotated[Path, typer.Option(help="File for the picture.")] = ROOT / "build" / "breakout_time.png",
) -> None:
    """Measure the virtual seconds until Breakout is played well."""
    if only and only not in MAKE_TRAINERS:
        raise typer.BadParameter(f"only must be one of: {'; '.join(MAKE_TRAINERS)}; not {only!r}")
    task = replace(TASK, options=replace(TASK.options, total_steps=total_steps))
    returns = random_returns(task.options.environment, RANDOM_EPISODES)
    mean, deviation = statistics.mean(returns), statistics.stdev(returns)
    console = Console(highlight=False)
    console.print(
        f"random actions: mean return {mean:.2f}, standard deviation {deviation:.2f}, {len(returns)} episodes"
    )
    found = compare(
        task,
        {only: MAKE_TRAINERS[only]} if only else MAKE_TRAINERS,
        Costs(step_us=step_us, gradient_us=gradient_us, slowdown=slowdown),
        seeds=seeds,
        workers=workers,
        notes={"random_returns": returns},
        processes=processes,
    )
    draw(found, task.options, mean, out)
    console.print(f"{out}: the weights of the workers were equal at the end of each training", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)

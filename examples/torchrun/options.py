"""Options that all four algorithms have. Each of their scripts adds its own."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from examples.common.command import check_ranges
from iswitch.wire import STALENESS_MAX

__all__ = ["Resume", "RunOptions"]

Resume = Annotated[Path | None, Option(metavar="FILE", help="Go on from this checkpoint, at all workers.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The environment, the length of the training, and the path of the gradients."""

    environment: Annotated[str, Option(help='Gymnasium\'s name of the environment, or "ALE/" and a game of Atari.')]
    seed: Annotated[int, Option(min=0, help="Seed of the weights, the environments and the actions.")] = 1
    num_envs: Annotated[int, Option(min=1, help="Environments of each worker.")] = 4
    total_steps: Annotated[int, Option(min=1, help="Environment steps of all workers together, at most.")]
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of the optimizer.")]
    anneal: Annotated[bool, Option(help="The learning rate falls linearly to 0.")] = False
    max_grad_norm: Annotated[float, Option(min=0, help="The mean gradient is clipped to this norm.")] = math.inf
    gamma: Annotated[float, Option(min=0, max=1, help="Discount factor.")] = 0.99
    reward_scale: Annotated[float, Option(help="Factor of the rewards that are learned from; of no report.")] = 1.0
    stop_return: Annotated[float, Option(help="Mean return at which the training stops; nan: none.")] = math.nan
    solved_episodes: Annotated[int, Option(min=1, help="Latest episodes of all workers in this mean.")] = 100
    solved_return: Annotated[float, Option(help="Mean return of the evaluation that is the goal; nan: none.")] = (
        math.nan
    )
    evaluation_episodes: Annotated[int, Option(min=0, help="Episodes of the evaluation at the end.")] = 20
    report_interval: Annotated[int, Option(min=1, help="Updates between two reports.")] = 100
    checkpoint_interval: Annotated[int, Option(min=1, help="Updates between two checkpoints.")] = 2000
    asynchronous: Annotated[bool, Option("--asynchronous", help="No worker waits for the slow ones.")] = False
    threshold: Annotated[int, Option(min=0, help="Gradients in an asynchronous update; 0: of half the workers.")] = 0
    staleness: Annotated[
        int, Option(min=0, max=STALENESS_MAX, help="Most updates between an asynchronous gradient and its update.")
    ] = 3

    def __post_init__(self) -> None:
        check_ranges(self)

"""PPO on CartPole with gradients that are pushed when they are ready: the asynchronous twin of `ppo.py`.

Agent, environments and hyperparameters are the same. No worker waits for the others. It collects a rollout, computes
the gradient of a minibatch with the newest weights that it has, and pushes it. It takes one Adam step for each update
that has come back, whichever workers contributed to it. All workers take the same steps in the same order. The updates
also carry the returns by which the training stops, so all workers end with equal weights.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch

from examples.ppo import batch_of, gae, loss
from examples.replica import Replica, Vector
from examples.rollout import Agent, EnvRunner
from examples.training import Episodes, Options, Pace, Progress, Trained
from iswitch import Update

__all__ = ["Pipeline", "Result", "Tally", "size", "train"]

_TALLY = 3
"""Elements behind the gradient in a vector: sum of returns, episodes and environment steps since the last vector."""


class Pipeline(Protocol):
    """The part of `iswitch.AsyncWorker` that a training needs."""

    def updates(self) -> Iterator[Update]: ...

    def push(self, vector: Vector) -> None: ...

    @property
    def refused(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Result(Trained):
    """The result of one worker's training. updates: those applied. pushed, refused: its own vectors."""

    updates: int
    pushed: int
    refused: int


class Tally:
    """Progress as the updates carry it, the same on all workers. Steps of refused vectors are not counted."""

    def __init__(self, options: Options) -> None:
        self.options, self.steps, self.episodes = options, 0, Episodes(options)

    def add(self, returned: float, ended: float, steps: float) -> None:
        """Add `ended` episodes, whose returns sum up to `returned`, and environment steps."""
        self.steps += round(steps)
        self.episodes.add(returned, ended)

    @property
    def remaining(self) -> float:
        """Return the share of `total_steps` that remains, 1 to 0."""
        return max(0.0, 1 - self.steps / self.options.total_steps)


def size(options: Options) -> int:
    """Return the elements of a vector: the `size` of the AsyncWorker."""
    agent = Agent.of(gymnasium.make(options.environment), options)
    return sum(parameter.numel() for parameter in agent.parameters()) + _TALLY


def train(
    worker: Pipeline,
    rank: int,
    options: Options,
    report: Callable[[Progress], Any] = lambda _: None,
    *,
    pace: Pace = lambda steps: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Train as one of `options.workers` workers. clock: seconds, for reports only."""
    start = clock()
    runner = EnvRunner(options, rank)
    agent = Agent.of(runner.envs[0], options)
    replica = Replica(agent, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm)
    order = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
    tally, curve, pushed = Tally(options), list[Progress](), 0
    every = options.epochs * options.num_minibatches

    def catch_up() -> bool:
        """Apply the updates that have come. Return True at the end of the training, beyond which no update is applied.
        The returns are checked after as many optimizer steps as in the synchronous twin."""
        for update in worker.updates():
            replica.gradient.copy_(torch.from_numpy(update.mean()[:-_TALLY]))
            replica.step(options.learning_rate * tally.remaining)
            tally.add(*update.sum[-_TALLY:].tolist())
            due = replica.steps % every == 0
            finished = not tally.remaining or due and tally.episodes.solved
            if due or finished:
                curve.append(
                    Progress(
                        update=replica.steps,
                        steps=tally.steps,
                        mean_return=tally.episodes.mean_return,
                        missing=(),
                        allreduces=replica.steps,
                        seconds=clock() - start,
                    )
                )
                report(curve[-1])
            if finished:
                return True
        return False

    def gradients() -> Iterator[None]:
        """Apply the updates, then put the gradient of the next minibatch into the replica, until the training ends."""
        while True:
            rollout = runner.rollout(agent)
            unsent[:] += sum(rollout.returns), len(rollout.returns), rollout.rewards.numel()
            steps = rollout.rewards.numel()
            advantages = gae(rollout, options.gamma, options.gae_lambda)
            batch = batch_of(rollout, advantages, (advantages - advantages.mean()) / (advantages.std() + 1e-8))
            for _ in range(options.epochs):
                for part in torch.randperm(advantages.numel(), generator=order).chunk(options.num_minibatches):
                    if steps:
                        pace(steps)  # most of this time is the rollout's, so it passes before the updates
                    if catch_up():
                        return
                    if not steps:
                        pace(0)
                    steps = 0
                    replica.gradient.zero_()
                    loss(agent, {name: column[part] for name, column in batch.items()}, options).backward()
                    yield

    unsent = np.zeros(_TALLY, np.float32)
    for _ in gradients():
        worker.push(np.concatenate([replica.gradient.numpy(), unsent]))
        pushed += 1
        unsent[:] = 0

    return Result(
        rank=rank,
        weights=replica.weights(),
        curve=curve,
        updates=replica.steps,
        pushed=pushed,
        refused=worker.refused,
        train_s=clock() - start,
    )

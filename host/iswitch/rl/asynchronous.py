"""PPO on CartPole with gradients that go to the switch when they are ready: the asynchronous twin of `ppo.py`.

The same learner, games and hyperparameters. No worker waits for the others: it plays, computes the gradient of a minibatch with the newest
weights that it has, hands it over, and takes one of Adam's steps for every update that has come back, whoever is in it. All workers take the
same steps in the same order, and what they stop by is in the updates, so their weights are equal at the end.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch

from iswitch.rl.player import Learner, Player
from iswitch.rl.ppo import advantages, batch_of, loss
from iswitch.rl.replica import Replica, Vector
from iswitch.rl.training import Episodes, Options, Pace, Progress, Trained
from iswitch.update import Update

__all__ = ["Pipeline", "Result", "Tally", "size", "train"]

_TALLY = 3
"""Numbers behind the gradient in a vector: the sum of returns, episodes and environment steps since the worker's last vector."""


class Pipeline(Protocol):
    """What a training needs of `iswitch.AsyncWorker`."""

    def updates(self) -> Iterator[Update]: ...

    def push(self, vector: Vector) -> None: ...

    @property
    def refused(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Result(Trained):
    """What one worker ends with. updates: those applied. pushed, refused: its own vectors."""

    updates: int
    pushed: int
    refused: int


class Tally:
    """How the training gets on, by what is in the updates: the same on all workers. Steps of vectors that were refused are not in it."""

    def __init__(self, options: Options) -> None:
        self.options, self.steps, self.episodes = options, 0, Episodes(options)

    def add(self, returned: float, ended: float, steps: float) -> None:
        self.steps += round(steps)
        self.episodes.add(returned, ended)

    @property
    def rest(self) -> float:
        """What is left of the steps, 1 to 0."""
        return max(0.0, 1 - self.steps / self.options.total_steps)




def size(options: Options) -> int:
    """Numbers in a vector: the `size` of the AsyncWorker."""
    learner = Learner.of(gymnasium.make(options.environment), options)
    return sum(parameter.numel() for parameter in learner.parameters()) + _TALLY


def train(worker: Pipeline, rank: int, options: Options, report: Callable[[Progress], Any] = lambda _: None, *,
          pace: Pace = lambda steps: None, clock: Callable[[], float] = time.perf_counter) -> Result:
    """One of `options.workers` workers. pace: called once for each gradient, with the number of environment steps since the last one; who
    simulates time lets it pass there. clock: seconds, for reports only."""
    start = clock()
    player = Player(options, rank)
    learner = Learner.of(player.games[0], options)
    replica = Replica(learner, learning_rate=options.learning_rate, gradient_norm=options.gradient_norm)
    order = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
    tally, curve, pushed = Tally(options), list[Progress](), 0
    every = options.epochs * options.minibatches

    def catch_up() -> bool:
        """Applies all updates that have come. Whether the training is at its end: none is applied beyond that. Returns are looked at as often
        as in the synchronous twin, by optimizer steps."""
        for update in worker.updates():
            replica.gradient.copy_(torch.from_numpy(update.mean()[:-_TALLY]))
            replica.step(options.learning_rate * tally.rest)
            tally.add(*update.sum[-_TALLY:].tolist())
            looks = replica.steps % every == 0
            over = not tally.rest or looks and tally.episodes.good
            if looks or over:
                curve.append(Progress(update=replica.steps, steps=tally.steps, mean_return=tally.episodes.mean_return, missing=(),
                                      allreduces=replica.steps, seconds=clock() - start))
                report(curve[-1])
            if over:
                return True
        return False

    def gradients() -> Iterator[None]:
        """Puts the gradient of one minibatch after another into the replica, and before that the updates; ends with the training."""
        while True:
            rollout = player.play(learner)
            told[:] += sum(rollout.returns), len(rollout.returns), rollout.rewards.numel()
            fresh = rollout.rewards.numel()
            gains = advantages(rollout, options.discount, options.trace)
            batch = batch_of(rollout, gains, (gains - gains.mean()) / (gains.std() + 1e-8))
            for _ in range(options.epochs):
                for part in torch.randperm(gains.numel(), generator=order).chunk(options.minibatches):
                    if fresh:
                        pace(fresh)  # most of it is for playing, and so comes before the updates
                    if catch_up():
                        return
                    if not fresh:
                        pace(0)
                    fresh = 0
                    replica.gradient.zero_()
                    loss(learner, {name: column[part] for name, column in batch.items()}, options).backward()
                    yield

    told = np.zeros(_TALLY, np.float32)
    for _ in gradients():
        worker.push(np.concatenate([replica.gradient.numpy(), told]))
        pushed += 1
        told[:] = 0

    return Result(rank=rank, weights=replica.weights(), curve=curve, updates=replica.steps, pushed=pushed, refused=worker.refused,
                  train_s=clock() - start)

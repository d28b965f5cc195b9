"""Asynchronous PPO: each worker pushes a gradient as soon as the gradient is ready. It differs from `ppo.py` in
`train` only.

No worker waits for the others. It collects a rollout, computes the gradient of a minibatch with its newest weights, and
pushes the gradient. It takes one Adam step for each update that comes back, whichever workers contributed to the
update. All workers take the same steps in the same order. The updates also carry the returns by which the training
stops, so all workers end with equal weights.

    make emulator                                                              # in one terminal
    python -m examples.async_ppo --switch 127.0.0.1:27000-27003 --workers 4    # in another
"""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from rich.console import Console
from typer import Option

from examples.common.command import Switch, application, parse_addresses
from examples.common.display import Display
from examples.common.envs import make_envs
from examples.common.processes import Done, LaunchError, ProcessGroup
from examples.common.progress import EpisodeReturns, Progress, SimulateCompute, TrainingResult
from examples.common.replica import Replica
from examples.ppo import Agent, Options, Sampler, evaluate, flatten, gae, loss
from iswitch import AsyncWorker
from iswitch.wire import STALENESS_MAX

__all__ = ["Result", "Tally", "app", "train", "vector_size"]

_TALLY_SIZE = 3
"""Elements behind the gradient in a vector: sum of returns, episodes and environment steps since the last vector."""


@dataclass(frozen=True, kw_only=True)
class Result(TrainingResult):
    """The result of one worker: the updates that it applied, and its own vectors that were pushed and refused."""

    updates: int
    pushed: int
    refused: int


class Tally:
    """Steps and returns as the updates carry them, equal on all workers. Those of refused vectors are not counted."""

    def __init__(self, options: Options) -> None:
        self.options, self.steps = options, 0
        self.episodes = EpisodeReturns(solved_episodes=options.solved_episodes, solved_return=options.solved_return)

    def add(self, return_sum: float, episodes: float, steps: float) -> None:
        """Add the sum of the episodes' returns, the number of these episodes, and environment steps."""
        self.steps += round(steps)
        self.episodes.add(return_sum, episodes)

    @property
    def remaining(self) -> float:
        """Share of `total_steps` that remains, 1 to 0."""
        return max(0.0, 1 - self.steps / self.options.total_steps)


def vector_size(options: Options) -> int:
    """Return the elements of a vector: the `size` of the AsyncWorker."""
    agent = Agent.of(make_envs(options.environment, 1), options)
    return sum(parameter.numel() for parameter in agent.parameters()) + _TALLY_SIZE


def train(
    worker: AsyncWorker,
    rank: int,
    options: Options,
    report: Callable[[Progress], Any] = lambda progress: None,
    *,
    simulate_compute: SimulateCompute = lambda steps: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Train as one of `options.workers` workers. `clock` returns seconds, for the reports only."""
    start = clock()
    sampler = Sampler(options, rank)
    agent = Agent.of(sampler.envs, options)
    replica = Replica(agent, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm)
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
    tally, curve, pushed = Tally(options), list[Progress](), 0
    steps_per_rollout = options.epochs * options.num_minibatches

    def apply_updates() -> bool:
        """Apply the updates that have arrived.

        The returns are checked after as many optimizer steps as in `ppo.py`. Return True at the end of the training;
        no later update is applied.
        """
        for update in worker.updates():
            replica.gradient.copy_(torch.from_numpy(update.mean()[:-_TALLY_SIZE]))
            replica.step(options.learning_rate * tally.remaining)
            tally.add(*update.sum[-_TALLY_SIZE:].tolist())
            due = replica.steps % steps_per_rollout == 0
            finished = not tally.remaining or (due and tally.episodes.solved)
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

    def minibatches() -> Iterator[dict[str, torch.Tensor]]:
        """Apply the updates, then yield the next minibatch, until the training ends."""
        while True:
            rollout = sampler.rollout(agent)
            steps = rollout.rewards.numel()
            unsent[:] += sum(rollout.returns), len(rollout.returns), steps
            advantages = gae(rollout, options.gamma, options.gae_lambda)
            batch = flatten(rollout, advantages, (advantages - advantages.mean()) / (advantages.std() + 1e-8))
            for _ in range(options.epochs):
                for rows in torch.randperm(advantages.numel(), generator=generator).chunk(options.num_minibatches):
                    if steps:
                        simulate_compute(steps)  # most of this time is the rollout's: it passes before the updates
                    if apply_updates():
                        return
                    if not steps:
                        simulate_compute(0)
                    steps = 0
                    yield {name: column[rows] for name, column in batch.items()}

    unsent = np.zeros(_TALLY_SIZE, np.float32)
    for minibatch in minibatches():
        replica.gradient.zero_()
        loss(agent, minibatch, options).backward()
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


def work(
    rank: int, address: str, key: int, threshold: int, staleness: int, options: Options, send: Callable[[object], None]
) -> None:
    """Train in a worker's process."""
    with AsyncWorker(
        address,
        rank=rank,
        world=options.workers,
        size=vector_size(options),
        threshold=threshold,
        staleness=staleness,
        key=key,
    ) as worker:
        send(Done(train(worker, rank, options, send)))


def main(
    options: Options,
    switch: Switch = "127.0.0.1:27000-27003",
    threshold: Annotated[int, Option(min=0, help="Vectors in an update; 0: half as many as workers.")] = 0,
    staleness: Annotated[
        int, Option(min=0, max=STALENESS_MAX, help="Most updates between a vector's weights and its own update.")
    ] = 3,
) -> bool:
    """Learn with asynchronous PPO. The switch averages the gradients that are ready first."""
    console, addresses, key = Console(), parse_addresses(switch), secrets.randbits(63)
    threshold = threshold or -(-options.workers // 2)
    with ProcessGroup(__name__) as group, Display(console) as display:
        for rank in range(options.workers):
            address = addresses[rank % len(addresses)]
            group.start(rank, f"worker {rank}", work, rank, address, key, threshold, staleness, options)
        show = lambda rank, progress: display.show(progress) if rank == 0 else None
        results = group.run(lambda: None, show)
    if len({result.weights_sha256 for result in results}) != 1:
        raise LaunchError("the workers' weights differ, so they received different updates")
    returns = evaluate(results[0].weights, options)
    console.print(
        f"mean return {np.mean(returns):.1f} of {len(returns)} unseen episodes, {results[0].updates:,} updates, "
        "weights "
        f"sha256 {results[0].weights_sha256[:16]}...",
        highlight=False,
        soft_wrap=True,
    )
    return bool(np.mean(returns) >= options.solved_return)


app = application(main)

if __name__ == "__main__":
    app()

"""PPO on CartPole with N workers and one policy. The switch forms the mean of the workers' gradients.

Every worker steps its own environments. For each minibatch it computes its own gradient, all parameters in one float32
vector. `worker.allreduce` replaces this vector by the mean of all workers' vectors, and every worker takes the same
Adam step. The copies of the policy are made equal at the start, and they stay equal because the switch gives all
workers the same bits. The sum does not depend on the order of packets, so the same seed gives the same weights. If a
worker dies, the others go on without it; when it comes back, it receives their state.

    python -m examples.ppo --switch 127.0.0.1:27000 --workers 4 --seed 1 --out build/demo
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from examples.replica import Collective, Replica, Vector
from examples.rollout import Agent, EnvRunner, Rollout, evaluate
from examples.training import Episodes, Options, Pace, Progress, Trained
from iswitch.errors import NotAMemberError

__all__ = ["Options", "Pace", "Progress", "Result", "batch_of", "evaluate", "gae", "loss", "train"]


@dataclass(frozen=True, kw_only=True)
class Result(Trained):
    """The result of one worker's training. segments: contributions that this worker has made to the switch's sums."""

    allreduces: int
    segments: int
    allreduce_s: float


def gae(rollout: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    """Return the advantages of a rollout's steps by generalized advantage estimation (Schulman et al. 2016)."""
    advantages = torch.zeros_like(rollout.rewards)
    next_values, next_advantages = rollout.next_values, torch.zeros_like(rollout.next_values)
    for step in reversed(range(len(advantages))):
        nonterminal = rollout.nonterminal[step]
        delta = rollout.rewards[step] + gamma * nonterminal * next_values - rollout.values[step]
        advantages[step] = next_advantages = delta + gamma * gae_lambda * nonterminal * next_advantages
        next_values = rollout.values[step]
    return advantages


def batch_of(rollout: Rollout, advantages: Tensor, normalised: Tensor) -> dict[str, Tensor]:
    """Return the columns that `loss` needs, one row for each step; normalised: the advantages for the policy's part."""
    return {
        "obs": rollout.obs.flatten(0, 1),
        "actions": rollout.actions.flatten(),
        "logprobs": rollout.logprobs.flatten(),
        "advantages": normalised.flatten(),
        "returns": (advantages + rollout.values).flatten(),
    }


def loss(agent: Agent, batch: dict[str, Tensor], options: Options) -> Tensor:
    """Return PPO's clipped loss. It is a mean over the batch, so the mean of the workers' gradients is the gradient of
    all their batches together."""
    logits = agent.policy(batch["obs"]).log_softmax(-1)
    ratio = (logits.gather(1, batch["actions"][:, None])[:, 0] - batch["logprobs"]).exp()
    clipped = ratio.clamp(1 - options.clip_coef, 1 + options.clip_coef)
    policy_loss = -torch.min(ratio * batch["advantages"], clipped * batch["advantages"]).mean()
    value_loss = 0.5 * (agent.value(batch["obs"])[:, 0] - batch["returns"]).square().mean()
    entropy = -(logits.exp() * logits).sum(-1).mean()
    return policy_loss + options.vf_coef * value_loss - options.ent_coef * entropy


class Trainer:
    """One worker's training. Nothing in it but the reports depends on the clock."""

    def __init__(self, worker: Collective, rank: int, options: Options, pace: Pace = lambda steps: None) -> None:
        self.worker, self.options, self.pace = worker, options, pace
        self.runner = EnvRunner(options, rank)
        self.agent = Agent.of(self.runner.envs[0], options)
        self.replica = Replica(self.agent, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm)
        self.order = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
        self.episodes = Episodes(options)
        self.missing: set[int] = set()
        self.allreduces, self.waited = 0, 0.0

    def allreduce(self, vector: Vector, op: Literal["sum", "mean"]) -> None:
        """Reduce a vector in place, and count it."""
        begin = time.perf_counter()
        self.missing.update(self.worker.allreduce(vector, op=op).missing)
        self.waited += time.perf_counter() - begin
        self.allreduces += 1

    def sync_state(self) -> None:
        """Make all workers equal: at the start, and whenever a worker has joined."""
        self.replica.sync_state(self.worker)
        self.episodes.clear()  # a joining worker has not seen them, and all workers must agree when to stop

    def update(self) -> bool:
        """Update the policy by one rollout. Return False if the update ended early, at the same allreduce on all
        workers, because a joining worker waits for its state."""
        options, replica = self.options, self.replica
        rollout = self.runner.rollout(self.agent)
        advantages = gae(rollout, options.gamma, options.gae_lambda)
        # One small vector an update, so that all workers normalise alike and agree when to stop. The advantages are in
        # units of a reward, for the switch's fixed-point sum has room for values below 2^14
        unit = 1 - options.gamma if options.gamma < 1 else 1.0
        moments = np.array(
            [
                advantages.mean() * unit,
                advantages.square().mean() * unit**2,
                sum(rollout.returns),
                len(rollout.returns),
            ],
            np.float32,
        )
        self.allreduce(moments, "mean")
        mean, square, returned, ended = moments.tolist()
        mean, square = mean / unit, square / unit**2
        scale = 1 / (math.sqrt(max(square - mean * mean, 0.0)) + 1e-8)
        batch = batch_of(rollout, advantages, (advantages - mean) * scale)
        learning_rate = options.learning_rate * (1 - replica.update / options.updates)
        steps = advantages.numel()
        for _ in range(options.epochs):
            for part in torch.randperm(advantages.numel(), generator=self.order).chunk(options.num_minibatches):
                if self.worker.needs_sync:
                    return False
                self.pace(steps)
                steps = 0
                replica.gradient.zero_()
                loss(self.agent, {name: column[part] for name, column in batch.items()}, options).backward()
                self.allreduce(replica.gradient.numpy(), "mean")
                replica.step(learning_rate)
        self.episodes.add(returned * options.workers, ended * options.workers)
        replica.update += 1
        return True


def train(
    worker: Collective,
    rank: int,
    options: Options,
    report: Callable[[Progress], None] = lambda progress: None,
    pace: Pace = lambda steps: None,
) -> Result:
    """Train as one of `options.workers` workers, each of which may die and come back meanwhile."""
    start = time.perf_counter()
    trainer = Trainer(worker, rank, options, pace)
    replica, curve = trainer.replica, list[Progress]()
    equal = False
    while replica.update < options.updates:
        try:
            if not equal or worker.needs_sync:
                trainer.sync_state()
                equal = True
                continue
            if not trainer.update():
                continue
        except NotAMemberError:  # the switch was restarted, or has evicted this worker
            worker.rejoin()
            continue
        curve.append(
            Progress(
                update=replica.update,
                mean_return=trainer.episodes.mean_return,
                allreduces=trainer.allreduces,
                steps=replica.update * options.num_steps * options.num_envs * options.workers,
                missing=tuple(sorted(trainer.missing)),
                seconds=time.perf_counter() - start,
            )
        )
        trainer.missing.clear()
        report(curve[-1])
        if trainer.episodes.solved:
            break

    return Result(
        rank=rank,
        weights=replica.weights(),
        curve=curve,
        allreduces=trainer.allreduces,
        segments=worker.segments_completed,
        train_s=time.perf_counter() - start,
        allreduce_s=trainer.waited,
    )


if __name__ == "__main__":
    from examples.launch import main

    raise SystemExit(main())

"""PPO on CartPole with N workers and one policy, the mean of whose gradients is taken inside the switch.

Every worker plays its own environments. For each minibatch it computes its own gradient, all parameters in one float32
vector; `worker.allreduce` replaces that by the mean of all workers' vectors, and every worker takes the same Adam step.
Nothing else keeps the copies of the policy together: after they were made equal at the start they stay so because the switch
gives everybody the same bits. The sum does not depend on the order of packets, so the same seed gives the same weights. When a worker dies the
others go on without it; when it comes back it is given their state.

    python -m iswitch.rl.ppo --switch 127.0.0.1:27000 --workers 4 --seed 1 --out build/demo
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from iswitch.errors import NotAMember
from iswitch.rl.player import Learner, Player, Rollout, evaluate
from iswitch.rl.replica import Collective, Replica, Vector
from iswitch.rl.training import Episodes, Options, Pace, Progress, Trained

__all__ = ["Options", "Pace", "Progress", "Result", "advantages", "batch_of", "evaluate", "loss", "train"]


@dataclass(frozen=True, kw_only=True)
class Result(Trained):
    """What one worker ends with."""

    allreduces: int
    segments: int
    """Contributions that this worker has made to the switch's sums."""
    allreduce_s: float


def advantages(rollout: Rollout, discount: float, trace: float) -> Tensor:
    """Generalized advantage estimation (Schulman et al. 2016)."""
    found = torch.zeros_like(rollout.rewards)
    following, ahead = rollout.last_values, torch.zeros_like(rollout.last_values)
    for step in reversed(range(len(found))):
        goes_on = 1 - rollout.ends[step]
        surprise = rollout.rewards[step] + discount * goes_on * following - rollout.values[step]
        found[step] = ahead = surprise + discount * trace * goes_on * ahead
        following = rollout.values[step]
    return found


def batch_of(rollout: Rollout, gains: Tensor, normalised: Tensor) -> dict[str, Tensor]:
    """What `loss` needs of a rollout, a row for each step; gains: its advantages."""
    return {"observations": rollout.observations.flatten(0, 1), "actions": rollout.actions.flatten(),
            "log_probabilities": rollout.log_probabilities.flatten(), "advantages": normalised.flatten(),
            "targets": (gains + rollout.values).flatten()}


def loss(learner: Learner, batch: dict[str, Tensor], options: Options) -> Tensor:
    """PPO's clipped objective; a mean over the batch, so the mean of the workers' gradients is that of all batches."""
    scores = learner.policy(batch["observations"]).log_softmax(-1)
    ratio = (scores.gather(1, batch["actions"][:, None])[:, 0] - batch["log_probabilities"]).exp()
    gain = torch.min(ratio * batch["advantages"],
                     ratio.clamp(1 - options.clip, 1 + options.clip) * batch["advantages"])
    error = learner.value(batch["observations"])[:, 0] - batch["targets"]
    entropy = -(scores.exp() * scores).sum(-1)
    return -gain.mean() + options.value_weight * 0.5 * error.square().mean() - options.entropy_weight * entropy.mean()


class Trainer:
    """One worker's side of the training. Nothing in it depends on the clock but what is reported."""

    def __init__(self, worker: Collective, rank: int, options: Options, pace: Pace = lambda steps: None) -> None:
        self.worker, self.options, self.pace = worker, options, pace
        self.player = Player(options, rank)
        self.learner = Learner.of(self.player.games[0], options)
        self.replica = Replica(self.learner, learning_rate=options.learning_rate, gradient_norm=options.gradient_norm)
        self.order = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
        self.episodes = Episodes(options)
        self.missing: set[int] = set()
        self.allreduces, self.waited = 0, 0.0

    def sum(self, vector: Vector, op: Literal["sum", "mean"]) -> None:
        begin = time.perf_counter()
        self.missing.update(self.worker.allreduce(vector, op=op).missing)
        self.waited += time.perf_counter() - begin
        self.allreduces += 1

    def share(self) -> None:
        """At the start, and whenever somebody new is there."""
        self.replica.share(self.worker)
        self.episodes.clear()  # who is new has not seen them, and all must agree when to stop

    def improve(self) -> bool:
        """One update of the policy. False if it ends early, at the same sum on all workers, because newcomers wait for their state."""
        options, replica = self.options, self.replica
        rollout = self.player.play(self.learner)
        gains = advantages(rollout, options.discount, options.trace)
        # One small vector a round: all workers normalise alike, and agree when to stop. In units of a reward, for the
        # switch's fixed-point sum has room for numbers up to 2^14
        unit = 1 - options.discount
        shared = np.array([gains.mean() * unit, gains.square().mean() * unit**2, sum(rollout.returns), len(rollout.returns)], np.float32)
        self.sum(shared, "mean")
        center, square, returned, ended = shared.tolist()
        center, square = center / unit, square / unit**2
        scale = 1 / (math.sqrt(max(square - center * center, 0.0)) + 1e-8)
        batch = batch_of(rollout, gains, (gains - center) * scale)
        rate = options.learning_rate * (1 - replica.update / options.updates)
        played = gains.numel()
        for _ in range(options.epochs):
            for part in torch.randperm(gains.numel(), generator=self.order).chunk(options.minibatches):
                if self.worker.changed:
                    return False
                self.pace(played)
                played = 0
                replica.gradient.zero_()
                loss(self.learner, {name: column[part] for name, column in batch.items()}, options).backward()
                self.sum(replica.gradient.numpy(), "mean")
                replica.step(rate)
        self.episodes.add(returned * options.workers, ended * options.workers)
        replica.update += 1
        return True


def train(worker: Collective, rank: int, options: Options,
          report: Callable[[Progress], None] = lambda progress: None, pace: Pace = lambda steps: None) -> Result:
    """Learn as one of `options.workers` workers, which may go and come back meanwhile."""
    start = time.perf_counter()
    trainer = Trainer(worker, rank, options, pace)
    replica, curve = trainer.replica, list[Progress]()
    shares = True
    while replica.update < options.updates:
        try:
            if shares or worker.changed:
                trainer.share()
                shares = False
                continue
            if not trainer.improve():
                continue
        except NotAMember:  # the switch was restarted, or has put us out
            worker.rejoin()
            continue
        curve.append(Progress(update=replica.update, mean_return=trainer.episodes.mean_return, allreduces=trainer.allreduces,
                              steps=replica.update * options.steps * options.environments * options.workers,
                              missing=tuple(sorted(trainer.missing)), seconds=time.perf_counter() - start))
        trainer.missing.clear()
        report(curve[-1])
        if trainer.episodes.good:
            break

    return Result(rank=rank, weights=replica.weights(), curve=curve, allreduces=trainer.allreduces, segments=worker.segments,
                  train_s=time.perf_counter() - start, allreduce_s=trainer.waited)


if __name__ == "__main__":
    from iswitch.rl.launch import main

    raise SystemExit(main())

"""PPO on CartPole with N workers and one policy, the mean of whose gradients is taken inside the switch.

Every worker plays its own environments. For each minibatch it computes its own gradient, all parameters in one float32
vector; `worker.allreduce` replaces that by the mean of all workers' vectors, and every worker takes the same Adam step.
Nothing else keeps the copies of the policy together: after they were made equal at the start they stay so because the switch
gives everybody the same bits. The sum does not depend on the order of packets, so the same seed gives the same weights. When a worker dies the
others go on without it; when it comes back it is given their state.

    python -m iswitch.rl.ppo --switch 127.0.0.1:27000 --workers 4 --seed 1 --out build/demo
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from iswitch.errors import NotAMember
from iswitch.rl.replica import Collective, Replica, Vector

__all__ = ["Learner", "Options", "Pace", "Player", "Progress", "Result", "advantages", "batch_of", "evaluate", "loss", "train"]

Pace = Callable[[int], None]
"""Is called before each gradient, with the steps that this worker's environments have taken since the one before: so that a simulation can
let their time pass."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is learned and how. Rewards and steps count over all workers together."""

    environment: str = "CartPole-v1"
    seed: int = 1
    workers: int = 4
    environments: int = 2
    """Environments per worker."""
    steps: int = 128
    """Steps of each environment between two updates."""
    total_steps: int = 200_000
    epochs: int = 4
    minibatches: int = 2
    learning_rate: float = 1.5e-3
    discount: float = 0.99
    trace: float = 0.95
    """Lambda of generalized advantage estimation."""
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5
    hidden: int = 64
    good_return: float = 475.0
    """Stop when the latest `good_episodes` episodes or more returned as much on average."""
    good_episodes: int = 20
    evaluation_episodes: int = 20

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.workers * self.environments * self.steps))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State after one update; but for `allreduces`, which each worker counts for itself, and `seconds` the same at every worker.
    missing: ranks that were not in one of the sums since the last report."""

    update: int
    steps: int
    mean_return: float
    missing: tuple[int, ...]
    allreduces: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one worker ends with."""

    rank: int
    weights: Vector
    weights_sha256: str
    curve: list[Progress]
    allreduces: int
    segments: int
    """Contributions that this worker has made to the switch's sums."""
    train_s: float
    allreduce_s: float


class Learner(nn.Module):
    """Policy and value, two separate nets of two hidden layers."""

    def __init__(self, observation_size: int, action_count: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
            linear = nn.Linear(inputs, outputs)
            nn.init.orthogonal_(linear.weight, gain, generator=generator)
            nn.init.zeros_(linear.bias)
            return linear

        def net(outputs: int, gain: float) -> nn.Sequential:
            return nn.Sequential(layer(observation_size, hidden, math.sqrt(2)), nn.Tanh(),
                                 layer(hidden, hidden, math.sqrt(2)), nn.Tanh(), layer(hidden, outputs, gain))

        self.action_count = action_count
        self.policy = net(action_count, 0.01)
        self.value = net(1, 1.0)

    def load(self, weights: Vector) -> None:
        nn.utils.vector_to_parameters(torch.from_numpy(weights), self.parameters())


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What a worker saw between two updates; time is the first axis, environment the second."""

    observations: Tensor
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    rewards: Tensor
    ends: Tensor
    last_values: Tensor
    returns: list[float]
    """Of the episodes that ended."""


class Player:
    """A worker's environments, in the middle of their episodes."""

    def __init__(self, options: Options, rank: int) -> None:
        self.options = options
        self.generator = torch.Generator().manual_seed(options.seed * 1_000_003 + rank)
        self.games = [gymnasium.make(options.environment, disable_env_checker=True)
                      for _ in range(options.environments)]
        first = (options.seed * options.workers + rank) * options.environments
        self.observations = np.stack([game.reset(seed=first + k)[0] for k, game in enumerate(self.games)])
        self.running = [0.0] * options.environments

    @torch.no_grad()
    def play(self, learner: Learner) -> Rollout:
        shape = (self.options.steps, self.options.environments)
        observations = torch.zeros(*shape, self.observations.shape[1])
        actions = torch.zeros(shape, dtype=torch.int64)
        rewards, ends = torch.zeros(shape), torch.zeros(shape)
        cut_short: list[tuple[int, int, Any]] = []
        returns: list[float] = []
        # The largest of score + Gumbel noise is a draw from the softmax of the scores
        noise = -torch.empty(*shape, learner.action_count).exponential_(generator=self.generator).log()
        for step in range(self.options.steps):
            observations[step] = torch.from_numpy(self.observations)
            actions[step] = (learner.policy(observations[step]) + noise[step]).argmax(-1)
            for k, action in enumerate(actions[step].tolist()):
                observation, reward, terminated, truncated, _ = self.games[k].step(action)
                rewards[step, k] = float(reward)
                self.running[k] += float(reward)
                if terminated or truncated:
                    if not terminated:
                        cut_short.append((step, k, observation))
                    ends[step, k] = 1
                    returns.append(self.running[k])
                    self.running[k] = 0.0
                    observation, _ = self.games[k].reset()
                self.observations[k] = observation
        for step, k, observation in cut_short:  # what would have followed still counts
            rewards[step, k] += self.options.discount * learner.value(torch.from_numpy(observation))[0]
        scores = learner.policy(observations).log_softmax(-1)
        return Rollout(observations=observations, actions=actions,
                       log_probabilities=scores.gather(-1, actions[..., None])[..., 0],
                       values=learner.value(observations)[..., 0], rewards=rewards, ends=ends,
                       last_values=learner.value(torch.from_numpy(self.observations))[..., 0], returns=returns)


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
        actions = int(self.player.games[0].action_space.n)  # type: ignore[attr-defined]
        self.learner = Learner(self.player.observations.shape[1], actions, options.hidden, torch.Generator().manual_seed(options.seed))
        self.replica = Replica(self.learner, learning_rate=options.learning_rate, gradient_norm=options.gradient_norm)
        self.order = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
        self.episodes: list[tuple[float, float]] = []
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
        self.episodes.append((returned * options.workers, ended * options.workers))
        while sum(count for _, count in self.episodes[1:]) >= options.good_episodes:
            self.episodes.pop(0)
        replica.update += 1
        return True

    def mean_return(self) -> tuple[float, float]:
        """Of the latest episodes of all workers, and how many they are."""
        count = sum(count for _, count in self.episodes)
        return sum(total for total, _ in self.episodes) / count if count else 0.0, count


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
        mean_return, count = trainer.mean_return()
        curve.append(Progress(update=replica.update, mean_return=mean_return, allreduces=trainer.allreduces,
                              steps=replica.update * options.steps * options.environments * options.workers,
                              missing=tuple(sorted(trainer.missing)), seconds=time.perf_counter() - start))
        trainer.missing.clear()
        report(curve[-1])
        if mean_return >= options.good_return and count >= options.good_episodes:
            break

    weights = replica.weights()
    return Result(rank=rank, weights=weights, weights_sha256=hashlib.sha256(weights.tobytes()).hexdigest(),
                  curve=curve, allreduces=trainer.allreduces, segments=worker.segments,
                  train_s=time.perf_counter() - start, allreduce_s=trainer.waited)


@torch.no_grad()
def evaluate(weights: Vector, options: Options) -> list[float]:
    """Returns of `evaluation_episodes` episodes that nobody has trained on, always taking the likeliest action."""
    games = [gymnasium.make(options.environment) for _ in range(options.evaluation_episodes)]
    observations = np.stack([game.reset(seed=2**31 + k)[0] for k, game in enumerate(games)])
    learner = Learner(observations.shape[1], int(games[0].action_space.n),  # type: ignore[attr-defined]
                      options.hidden, torch.Generator())
    learner.load(weights)
    returns = [0.0] * len(games)
    playing = set(range(len(games)))
    while playing:
        actions = learner.policy(torch.from_numpy(observations)).argmax(-1)
        for k in sorted(playing):
            observations[k], reward, terminated, truncated, _ = games[k].step(int(actions[k]))
            returns[k] += float(reward)
            if terminated or truncated:
                playing.discard(k)
    return returns


if __name__ == "__main__":
    from iswitch.rl.launch import main

    raise SystemExit(main())

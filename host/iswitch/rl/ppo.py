"""PPO on CartPole with N workers and one policy, the mean of whose gradients is taken inside the switch.

Every worker plays its own environments. For each minibatch it computes its own gradient, all parameters in one float32
vector; `worker.allreduce` replaces that by the mean of all workers' vectors, and every worker takes the same Adam step.
Nothing else keeps the copies of the policy together: after the initial broadcast they stay equal because the switch
gives everybody the same bits. The sum does not depend on the order of packets, so the same seed gives the same weights.

    python -m iswitch.rl.ppo --switch 127.0.0.1:27000 --workers 4 --seed 1 --out build/demo
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["Collective", "Learner", "Options", "Progress", "Result", "advantages", "evaluate", "train"]

Vector = npt.NDArray[np.float32]


class Collective(Protocol):
    """What the algorithm needs of `iswitch.Worker`: both methods work in place."""

    def allreduce(self, array: Vector, op: Literal["sum", "mean"] = "sum") -> Any: ...

    def broadcast(self, buffer: Vector, root: int = 0) -> Any: ...


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
    """State after one update; but for `seconds` the same at every worker."""

    update: int
    steps: int
    mean_return: float
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
    collective_sizes: dict[int, int]
    """How many collectives, the broadcast among them, there were of each number of elements."""
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

    def flat_gradient(self) -> Tensor:
        """One vector of which every parameter's gradient is a view, so that a whole gradient is reduced as it lies."""
        flat = torch.zeros(sum(p.numel() for p in self.parameters()))
        start = 0
        for parameter in self.parameters():
            parameter.grad = flat[start:start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        return flat

    def weights(self) -> Vector:
        return nn.utils.parameters_to_vector(self.parameters()).detach().numpy().copy()

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


def loss(learner: Learner, batch: dict[str, Tensor], options: Options) -> Tensor:
    """PPO's clipped objective; a mean over the batch, so the mean of the workers' gradients is that of all batches."""
    scores = learner.policy(batch["observations"]).log_softmax(-1)
    ratio = (scores.gather(1, batch["actions"][:, None])[:, 0] - batch["log_probabilities"]).exp()
    gain = torch.min(ratio * batch["advantages"],
                     ratio.clamp(1 - options.clip, 1 + options.clip) * batch["advantages"])
    error = learner.value(batch["observations"])[:, 0] - batch["targets"]
    entropy = -(scores.exp() * scores).sum(-1)
    return -gain.mean() + options.value_weight * 0.5 * error.square().mean() - options.entropy_weight * entropy.mean()


def train(worker: Collective, rank: int, options: Options,
          report: Callable[[Progress], None] = lambda progress: None) -> Result:
    """Learn as one of `options.workers` workers. Nothing here depends on the clock but what is reported."""
    start = time.perf_counter()
    waited = 0.0
    sizes: dict[int, int] = {}

    def mean(vector: Vector) -> None:
        nonlocal waited
        begin = time.perf_counter()
        worker.allreduce(vector, op="mean")
        waited += time.perf_counter() - begin
        sizes[vector.size] = sizes.get(vector.size, 0) + 1

    player = Player(options, rank)
    learner = Learner(player.observations.shape[1], int(player.games[0].action_space.n),  # type: ignore[attr-defined]
                      options.hidden, torch.Generator().manual_seed(options.seed))
    weights = learner.weights() if rank == 0 else np.zeros_like(learner.weights())
    worker.broadcast(weights, root=0)
    sizes[weights.size] = 1
    learner.load(weights)
    gradient = learner.flat_gradient()
    adam = torch.optim.Adam(learner.parameters(), lr=options.learning_rate, eps=1e-5)
    order = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)

    curve: list[Progress] = []
    episodes: list[tuple[float, float]] = []
    for update in range(options.updates):
        adam.param_groups[0]["lr"] = options.learning_rate * (1 - update / options.updates)
        rollout = player.play(learner)
        gains = advantages(rollout, options.discount, options.trace)
        # One small vector a round: all workers normalise alike, and agree when to stop. In units of a reward, for the
        # switch's fixed-point sum has room for numbers up to 2^14
        unit = 1 - options.discount
        shared = np.array([gains.mean() * unit, gains.square().mean() * unit**2,
                           sum(rollout.returns), len(rollout.returns)], np.float32)
        mean(shared)
        center, square, returned, ended = shared.tolist()
        center, square = center / unit, square / unit**2
        scale = 1 / (math.sqrt(max(square - center * center, 0.0)) + 1e-8)
        batch = {"observations": rollout.observations.flatten(0, 1), "actions": rollout.actions.flatten(),
                 "log_probabilities": rollout.log_probabilities.flatten(),
                 "advantages": ((gains - center) * scale).flatten(), "targets": (gains + rollout.values).flatten()}
        for _ in range(options.epochs):
            for part in torch.randperm(gains.numel(), generator=order).chunk(options.minibatches):
                gradient.zero_()
                loss(learner, {name: column[part] for name, column in batch.items()}, options).backward()
                mean(gradient.numpy())
                gradient *= min(1.0, options.gradient_norm / (float(gradient.norm()) + 1e-6))
                adam.step()

        episodes.append((returned * options.workers, ended * options.workers))
        while sum(count for _, count in episodes[1:]) >= options.good_episodes:
            episodes.pop(0)
        count = sum(count for _, count in episodes)
        mean_return = sum(total for total, _ in episodes) / count if count else 0.0
        curve.append(Progress(update=update + 1, mean_return=mean_return, allreduces=sum(sizes.values()) - 1,
                              steps=(update + 1) * options.steps * options.environments * options.workers,
                              seconds=time.perf_counter() - start))
        report(curve[-1])
        if mean_return >= options.good_return and count >= options.good_episodes:
            break

    weights = learner.weights()
    return Result(rank=rank, weights=weights, weights_sha256=hashlib.sha256(weights.tobytes()).hexdigest(),
                  curve=curve, allreduces=sum(sizes.values()) - 1, collective_sizes=sizes,
                  train_s=time.perf_counter() - start, allreduce_s=waited)


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

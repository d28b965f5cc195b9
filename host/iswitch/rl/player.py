"""Who plays: policy and value, the environments of a worker, and the play by which a policy is judged."""

import math
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from iswitch.rl.replica import Vector
from iswitch.rl.training import Options

__all__ = ["Learner", "Player", "Rollout", "evaluate"]


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

    @classmethod
    def of(cls, game: gymnasium.Env[Any, Any], options: Options) -> Self:
        """For a game, with the same weights for the same seed. ValueError if it is not played like CartPole."""
        seen, actions = game.observation_space, game.action_space
        if not (isinstance(seen, spaces.Box) and len(seen.shape) == 1 and isinstance(actions, spaces.Discrete)):
            raise ValueError(f"Options environment must show a vector and take one of several actions, as CartPole does; "
                             f"{options.environment!r} shows {seen} and takes {actions}")
        return cls(seen.shape[0], int(actions.n), options.hidden, torch.Generator().manual_seed(options.seed))

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


@torch.no_grad()
def evaluate(weights: Vector, options: Options) -> list[float]:
    """Returns of `evaluation_episodes` episodes that nobody has trained on, always taking the likeliest action."""
    games = [gymnasium.make(options.environment) for _ in range(options.evaluation_episodes)]
    observations = np.stack([game.reset(seed=2**31 + k)[0] for k, game in enumerate(games)])
    learner = Learner.of(games[0], options)
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

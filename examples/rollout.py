"""Policy and value nets, the environments in which a worker collects rollouts, and the evaluation of a policy."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from examples.replica import Vector
from examples.training import Options

__all__ = ["HELD_OUT", "Agent", "EnvRunner", "Rollout", "episode", "evaluate"]

HELD_OUT = 2**31
"""First seed of the evaluation's environments; the trainings' seeds are smaller."""


class Agent(nn.Module):
    """Policy and value, two separate nets of two hidden layers."""

    def __init__(self, observation_size: int, action_count: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
            linear = nn.Linear(inputs, outputs)
            nn.init.orthogonal_(linear.weight, gain, generator=generator)
            nn.init.zeros_(linear.bias)
            return linear

        def net(outputs: int, gain: float) -> nn.Sequential:
            return nn.Sequential(
                layer(observation_size, hidden, math.sqrt(2)),
                nn.Tanh(),
                layer(hidden, hidden, math.sqrt(2)),
                nn.Tanh(),
                layer(hidden, outputs, gain),
            )

        self.action_count = action_count
        self.policy = net(action_count, 0.01)
        self.value = net(1, 1.0)

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], options: Options) -> Self:
        """Make the nets for an environment, with the same weights for the same seed.

        Raises
        ------
        ValueError
            If the environment's observations are no vectors, or its actions are not discrete.
        """
        seen, actions = env.observation_space, env.action_space
        if not (isinstance(seen, spaces.Box) and len(seen.shape) == 1 and isinstance(actions, spaces.Discrete)):
            raise ValueError(
                f"Options environment must have a vector as observation and discrete actions, as CartPole "
                f"has; {options.environment!r} has {seen} and {actions}"
            )
        return cls(seen.shape[0], int(actions.n), options.hidden, torch.Generator().manual_seed(options.seed))

    def load(self, weights: Vector) -> None:
        """Take these weights, all parameters in one vector."""
        nn.utils.vector_to_parameters(torch.from_numpy(weights), self.parameters())

    @torch.no_grad()
    def greedy(self, obs: Vector) -> Tensor:
        """Return the most probable action for each row of observations."""
        return self.policy(torch.from_numpy(obs)).argmax(-1)


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A worker's transitions between two updates: the first axis is time, the second the environment.

    rewards: scaled; where an episode was truncated, plus the discounted value of its last observation. nonterminal: 0
    where an episode ended with the step, terminated or truncated, else 1. returns: of the episodes that ended, not
    scaled.
    """

    obs: Tensor
    actions: Tensor
    logprobs: Tensor
    values: Tensor
    rewards: Tensor
    nonterminal: Tensor
    next_values: Tensor
    returns: list[float]


class EnvRunner:
    """A worker's environments. An episode that has not ended goes on in the next rollout."""

    def __init__(self, options: Options, rank: int) -> None:
        self.options = options
        self.generator = torch.Generator().manual_seed(options.seed * 1_000_003 + rank)
        self.envs = [gymnasium.make(options.environment, disable_env_checker=True) for _ in range(options.num_envs)]
        first = (options.seed * options.workers + rank) * options.num_envs
        self.obs = np.stack([env.reset(seed=first + k)[0] for k, env in enumerate(self.envs)])
        self.returns = [0.0] * options.num_envs

    @torch.no_grad()
    def rollout(self, agent: Agent) -> Rollout:
        """Take `num_steps` steps in each environment, with actions sampled from the policy."""
        options = self.options
        shape = (options.num_steps, options.num_envs)
        obs = torch.zeros(*shape, self.obs.shape[1])
        actions = torch.zeros(shape, dtype=torch.int64)
        rewards, nonterminal = torch.zeros(shape), torch.ones(shape)
        truncated_at: list[tuple[int, int, Any]] = []
        returns: list[float] = []
        # The largest of logit + Gumbel noise is a sample from the softmax of the logits
        noise = -torch.empty(*shape, agent.action_count).exponential_(generator=self.generator).log()
        for step in range(options.num_steps):
            obs[step] = torch.from_numpy(self.obs)
            actions[step] = (agent.policy(obs[step]) + noise[step]).argmax(-1)
            for k, action in enumerate(actions[step].tolist()):
                next_obs, reward, terminated, truncated, _ = self.envs[k].step(action)
                rewards[step, k] = float(reward) * options.reward_scale
                self.returns[k] += float(reward)
                if terminated or truncated:
                    if not terminated:
                        truncated_at.append((step, k, next_obs))
                    nonterminal[step, k] = 0
                    returns.append(self.returns[k])
                    self.returns[k] = 0.0
                    next_obs, _ = self.envs[k].reset()
                self.obs[k] = next_obs
        for step, k, last_obs in truncated_at:  # the time limit ended the episode, not the policy: bootstrap
            rewards[step, k] += options.gamma * agent.value(torch.from_numpy(last_obs))[0]
        logprobs = agent.policy(obs).log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        return Rollout(
            obs=obs,
            actions=actions,
            logprobs=logprobs,
            values=agent.value(obs)[..., 0],
            rewards=rewards,
            nonterminal=nonterminal,
            next_values=agent.value(torch.from_numpy(self.obs))[..., 0],
            returns=returns,
        )


def evaluate(weights: Vector, options: Options) -> list[float]:
    """Return the returns of `evaluation_episodes` episodes that no worker has trained on, with the most probable action
    at each step."""
    envs = [gymnasium.make(options.environment) for _ in range(options.evaluation_episodes)]
    obs = np.stack([env.reset(seed=HELD_OUT + k)[0] for k, env in enumerate(envs)])
    agent = Agent.of(envs[0], options)
    agent.load(weights)
    returns = [0.0] * len(envs)
    running = set(range(len(envs)))
    while running:
        actions = agent.greedy(obs)
        for k in sorted(running):
            obs[k], reward, terminated, truncated, _ = envs[k].step(int(actions[k]))
            returns[k] += float(reward)
            if terminated or truncated:
                running.discard(k)
    return returns


def episode(agent: Agent, environment: str, seed: int) -> Iterator[tuple[Vector, float]]:
    """Yield each observation of one greedy episode and the return up to it; the last one is that of the end."""
    env = gymnasium.make(environment)
    obs, _ = env.reset(seed=seed)
    returned, ended = 0.0, False
    while True:
        yield np.asarray(obs, np.float32), returned
        if ended:
            return
        obs, reward, terminated, truncated, _ = env.step(int(agent.greedy(obs[None])[0]))
        returned, ended = returned + float(reward), terminated or truncated

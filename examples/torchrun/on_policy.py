"""What A2C and PPO share: a policy with a value for each observation, and rollouts of it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from examples.common.networks import frame_body, initialize
from examples.ppo import Rollout
from examples.torchrun.environments import Environments
from examples.torchrun.learner import Learner

__all__ = ["ActorCritic", "Collector"]


class ActorCritic(nn.Module):
    """A policy and its value. Vectors have a net of two hidden layers for each; frames one net for both.

    Discrete actions have a softmax of the outputs, others a normal distribution around them, each with a standard
    deviation that does not depend on the observation.

    Parameters
    ----------
    observations, actions : gymnasium.Space
        Spaces of the environment.
    hidden : int
        Units of the policy's hidden layers.
    value_hidden : int
        Units of the value's hidden layers, for vectors.
    seed : int
        Seed of the weights.
    channels : int
        Channels of the last convolution, for frames.
    """

    def __init__(
        self,
        observations: spaces.Space[Any],
        actions: spaces.Space[Any],
        *,
        hidden: int,
        value_hidden: int,
        seed: int,
        channels: int = 64,
    ) -> None:
        super().__init__()
        if not (isinstance(observations, spaces.Box) and isinstance(actions, spaces.Box | spaces.Discrete)):
            raise ValueError(
                f"environment must have vectors or frames as observations, and discrete actions or vectors, not "
                f"{observations} and {actions}"
            )
        self.discrete = isinstance(actions, spaces.Discrete)
        self.value_body: nn.Module | None = None
        if len(observations.shape) == 1:
            net = lambda units: nn.Sequential(
                nn.Linear(observations.shape[0], units), nn.Tanh(), nn.Linear(units, units), nn.Tanh()
            )
            self.body, self.value_body = net(hidden), net(value_hidden)
        else:
            self.body, value_hidden = frame_body(observations.shape[0], channels, hidden), hidden
        if isinstance(actions, spaces.Discrete):
            self.policy = nn.Linear(hidden, int(actions.n))
        else:
            self.policy = nn.Linear(hidden, actions.shape[0])
            self.log_std = nn.Parameter(torch.zeros(actions.shape[0]))
            self.low, self.high = actions.low, actions.high
        self.value = nn.Linear(value_hidden, 1)
        initialize(self, seed, {self.policy: 0.01, self.value: 1.0})

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the policy and the values, a row for each observation."""
        features = self.body(obs)
        value_features = features if self.value_body is None else self.value_body(obs)
        return self.policy(features), self.value(value_features)[..., 0]

    def sample(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """Sample an action for each row of the policy's outputs."""
        if self.discrete:  # the largest of logit + Gumbel noise is a sample from the softmax of the logits
            return (outputs - torch.empty_like(outputs).exponential_(generator=generator).log()).argmax(-1)
        return outputs + self.log_std.exp() * torch.randn(outputs.shape, generator=generator)

    def logprobs(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return the log-probabilities, or log-densities, of actions."""
        if self.discrete:
            return outputs.log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        normal = torch.distributions.Normal(outputs, self.log_std.exp().expand_as(outputs))
        return normal.log_prob(actions).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the mean entropy of the distributions."""
        if self.discrete:
            logprobs = outputs.log_softmax(-1)
            return -(logprobs.exp() * logprobs).sum(-1).mean()
        return torch.distributions.Normal(torch.zeros_like(self.log_std), self.log_std.exp()).entropy().sum()

    def environment_actions(self, actions: Tensor) -> npt.NDArray[Any]:
        """Return actions as the environment takes them: within its bounds."""
        return np.asarray(actions.numpy() if self.discrete else np.clip(actions.numpy(), self.low, self.high))

    @torch.no_grad()
    def greedy_actions(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the most probable action for each row of observations."""
        rows = torch.from_numpy(obs)
        outputs = self.policy(self.body(rows.float() if rows.is_floating_point() else rows))
        return self.environment_actions(outputs.argmax(-1) if self.discrete else outputs)


class Collector:
    """Collects rollouts. Episodes continue in the next rollout.

    Parameters
    ----------
    envs : Environments
        The environments.
    agent : ActorCritic
        The policy.
    learner : Learner
        Counts the steps and seeds the actions.
    """

    def __init__(self, envs: Environments, agent: ActorCritic, learner: Learner) -> None:
        self.envs, self.agent, self.learner = envs, agent, learner
        self.options = envs.options

    @torch.no_grad()
    def rollout(self, num_steps: int) -> Rollout:
        """Take `num_steps` steps in each environment, with actions sampled from the policy."""
        if self.learner.begins_phase():
            self.envs.begin(self.learner)
            self.generator = self.learner.generator()
        columns: dict[str, list[Tensor]] = {name: [] for name in ("obs", "actions", "logprobs", "values")}
        columns |= {"rewards": [], "nonterminal": []}
        for _ in range(num_steps):
            obs = torch.from_numpy(self.envs.obs)
            outputs, values = self.agent(obs)
            actions = self.agent.sample(outputs, self.generator)
            step = self.envs.step(self.agent.environment_actions(actions))
            rewards = torch.from_numpy(step.rewards)
            truncated = torch.from_numpy(step.truncated & ~step.terminated)
            if truncated.any():  # the time limit ended the episode, not the policy: bootstrap
                last = torch.from_numpy(step.next_obs)[truncated]
                rewards[truncated] += self.options.gamma * self.agent(last)[1]
            row = {
                "obs": obs,
                "actions": actions,
                "logprobs": self.agent.logprobs(outputs, actions),
                "values": values,
                "rewards": rewards,
                "nonterminal": torch.from_numpy(~(step.terminated | step.truncated)).float(),
            }
            for name, column in row.items():
                columns[name].append(column)
        next_values = self.agent(torch.from_numpy(self.envs.obs))[1]
        return Rollout(
            **{name: torch.stack(rows) for name, rows in columns.items()}, next_values=next_values, returns=[]
        )

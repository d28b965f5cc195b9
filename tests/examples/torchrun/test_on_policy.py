"""Policies and rollouts of A2C and PPO: samples are as likely as the policy says, and time limits bootstrap."""

import gymnasium
import numpy as np
import pytest
import torch

from examples.torchrun.environments import Environments
from examples.torchrun.learner import Times
from examples.torchrun.on_policy import ActorCritic, Collector
from examples.torchrun.options import RunOptions

SPACES = gymnasium.spaces
VECTORS = SPACES.Box(-1, 1, (2,))


class Corridor(gymnasium.Env):
    """The observation counts the steps. The time limit ends the episode at step 3, or the rules do."""

    observation_space, action_space = SPACES.Box(0, 9, (1,)), SPACES.Discrete(2)
    truncates = True

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == 3
        return np.full(1, self.steps, np.float32), 1.0, ended and not self.truncates, ended and self.truncates, {}


gymnasium.register("CountedCorridor-v0", entry_point=Corridor)


class Learner:
    """Stands in for the learner."""

    seed, times = [1, 0, 0], Times()

    def __init__(self):
        self.begun = False

    def begins_phase(self):
        begins, self.begun = not self.begun, True
        return begins

    def generator(self):
        return torch.Generator().manual_seed(1)

    def observe(self, steps, returns):
        pass


@pytest.mark.parametrize("truncates", [True, False])
def test_a_time_limit_bootstraps_and_the_end_of_an_episode_does_not(truncates, monkeypatch):
    """The value of an observation is its count + 1."""
    monkeypatch.setattr(Corridor, "truncates", truncates)
    options = RunOptions(environment="CountedCorridor-v0", num_envs=2, total_steps=1, learning_rate=1, gamma=0.5)
    envs = Environments(options)
    agent = ActorCritic(envs.observations, envs.actions, hidden=1, value_hidden=1, seed=1)
    agent.value_body, agent.value = torch.nn.Identity(), torch.nn.Linear(1, 1)
    with torch.no_grad():
        agent.value.weight.fill_(1)
        agent.value.bias.fill_(1)
    collector = Collector(envs, agent, Learner())
    rollout = collector.rollout(5)
    expected = {
        "obs": [0, 1, 2, 0, 1],
        "values": [1, 2, 3, 1, 2],
        "rewards": [1, 1, 1 + (0.5 * 4 if truncates else 0), 1, 1],
        "nonterminal": [1, 1, 0, 1, 1],
    }
    for name, column in expected.items():
        for k in range(2):
            assert getattr(rollout, name)[:, k].flatten().tolist() == column, name
    assert rollout.next_values.tolist() == [3, 3]
    assert collector.rollout(1).obs.flatten().tolist() == [2, 2]  # the episode continues


@pytest.mark.parametrize("actions", [SPACES.Discrete(3), SPACES.Box(-1, 1, (2,))], ids=["discrete", "vector"])
def test_actions_are_as_likely_as_their_probabilities_say(actions):
    agent = ActorCritic(VECTORS, actions, hidden=2, value_hidden=2, seed=1)
    outputs = torch.tensor([0.3, -1.0, 0.5])[: agent.policy.out_features].expand(40_000, -1)
    generator = torch.Generator().manual_seed(1)
    if agent.discrete:
        samples = agent.sample(outputs, generator)
        shares = samples.bincount(minlength=3) / len(samples)
        each = torch.stack([agent.logprobs(outputs[:1], torch.tensor([k]))[0] for k in range(3)])
        assert each.exp().sum().item() == pytest.approx(1)
        np.testing.assert_allclose(shares, each.detach().exp(), atol=0.01)
        assert agent.entropy(outputs).item() == pytest.approx(-(each.exp() * each).sum().item(), rel=1e-4)
    else:
        with torch.no_grad():
            agent.log_std.copy_(torch.tensor([0.2, -0.7]))
            samples = agent.sample(outputs, generator)
            np.testing.assert_allclose(samples.mean(0), outputs[0], atol=0.02)
            np.testing.assert_allclose(samples.std(0), np.exp([0.2, -0.7]), rtol=0.02)
            # The entropy is the mean of minus the log-density
            assert agent.entropy(outputs).item() == pytest.approx(
                -agent.logprobs(outputs, samples).mean().item(), abs=0.02
            )


def test_actions_stay_within_the_bounds_of_the_environment():
    agent = ActorCritic(VECTORS, SPACES.Box(-1, 1, (2,)), hidden=2, value_hidden=2, seed=1)
    assert agent.environment_actions(torch.tensor([[-3.0, 0.5]])).tolist() == [[-1, 0.5]]


@pytest.mark.parametrize(
    "observations, actions", [(SPACES.Discrete(4), SPACES.Discrete(2)), (VECTORS, SPACES.MultiBinary(2))]
)
def test_environment_wrong(observations, actions):
    with pytest.raises(ValueError, match=r"environment must have vectors or frames.*not"):
        ActorCritic(observations, actions, hidden=1, value_hidden=1, seed=1)

"""PPO with a stand-in for the switch: N workers learn one policy."""

import dataclasses
import importlib.util
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from examples.common.envs import make_envs
from examples.common.replica import Replica
from examples.ppo import Agent, Options, Sampler, evaluate, flatten, gae, loss, train

spec = importlib.util.spec_from_file_location("fake_worker", Path(__file__).with_name("fake_worker.py"))
fake_worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_worker)

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(workers=3, num_envs=2, num_steps=32, total_steps=3 * 2 * 32 * 3, epochs=2, num_minibatches=2)


def run(options):
    return fake_worker.Switch(options.workers).run(lambda worker, rank: train(worker, rank, options))


def test_weights_are_equal_on_all_workers_and_on_repeat():
    first, again = run(FEW), run(FEW)
    assert len({result.weights_sha256 for result in first + again}) == 1
    curves = [[dataclasses.replace(point, seconds=0) for point in result.curve] for result in first + again]
    assert all(curve == curves[0] for curve in curves)


def test_seed_changes_weights():
    assert run(FEW)[0].weights_sha256 != run(dataclasses.replace(FEW, seed=2))[0].weights_sha256


def test_collectives_are_counted():
    result = run(FEW)[0]
    gradients = FEW.updates * FEW.epochs * FEW.num_minibatches
    assert result.allreduces == result.segments == gradients + FEW.updates


def test_the_mean_of_gradients_is_the_gradient_of_the_whole_batch():
    agent = Agent(4, 2, FEW.hidden, torch.Generator().manual_seed(1))
    gradient = Replica(agent, learning_rate=1.0, max_grad_norm=1.0).gradient
    batches = []
    for rank in range(FEW.workers):
        rollout = Sampler(FEW, rank).rollout(agent)
        advantages = gae(rollout, FEW.gamma, FEW.gae_lambda)
        batch = flatten(rollout, advantages, advantages)
        batches.append(batch | {"logprobs": batch["logprobs"] - 0.1 * rank})

    def gradient_of(batch):
        gradient.zero_()
        loss(agent, batch, FEW).backward()
        return gradient.numpy().copy()

    parts = [gradient_of(batch) for batch in batches]
    fake_worker.Switch(FEW.workers).run(lambda worker, rank: worker.allreduce(parts[rank], op="mean"))
    whole = gradient_of({name: torch.cat([batch[name] for batch in batches]) for name in batches[0]})
    assert np.abs(whole).max() > 1e-3
    np.testing.assert_allclose(parts[0], whole, rtol=1e-3, atol=1e-6)


def test_gae_is_the_sum_of_discounted_deltas():
    """The definition: for each step a sum over all later steps of its episode."""
    rollout = Sampler(FEW, 0).rollout(Agent(4, 2, FEW.hidden, torch.Generator().manual_seed(1)))
    advantages = gae(rollout, 0.9, 0.8)
    rewards, nonterminal = rollout.rewards.double().numpy(), rollout.nonterminal.numpy()
    values = np.concatenate([rollout.values.numpy(), rollout.next_values.numpy()[None]]).astype(float)
    assert 0 < (nonterminal == 0).sum() < nonterminal.size
    for k in range(FEW.num_envs):
        for step in range(FEW.num_steps):
            expected, weight = 0.0, 1.0
            for later in range(step, FEW.num_steps):
                next_value = values[later + 1, k] if nonterminal[later, k] else 0.0
                expected += weight * (rewards[later, k] + 0.9 * next_value - values[later, k])
                weight *= 0.9 * 0.8
                if not nonterminal[later, k]:
                    break
            assert advantages[step, k].item() == pytest.approx(expected, abs=1e-4)


class Corridor(gymnasium.Env):
    """The observation counts the steps. Step 3 ends the episode: it is truncated, or terminated."""

    observation_space, action_space = gymnasium.spaces.Box(0, 9, (1,)), gymnasium.spaces.Discrete(2)

    def __init__(self, truncates):
        self.truncates = truncates

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == 3
        return np.array([self.steps], np.float32), 2.0, ended and not self.truncates, ended and self.truncates, {}


gymnasium.register("Corridor-v0", entry_point=Corridor)


@pytest.mark.parametrize("truncates", [True, False])
def test_truncation_bootstraps_and_termination_does_not(truncates, monkeypatch):
    """A rollout of 5 steps holds an episode of 3 steps and the start of the next. An observation's value is its count +
    1."""
    make = gymnasium.make
    monkeypatch.setattr(gymnasium, "make", lambda name, **settings: make(name, truncates=truncates, **settings))
    options = Options(
        environment="Corridor-v0", workers=1, num_envs=1, num_steps=5, num_minibatches=1, reward_scale=0.5
    )
    sampler = Sampler(options, 0)
    agent = Agent.of(sampler.envs, options)
    agent.value = torch.nn.Linear(1, 1)
    with torch.no_grad():
        agent.value.weight.fill_(1.0)
        agent.value.bias.fill_(1.0)
    rollout = sampler.rollout(agent)
    assert rollout.obs.flatten().tolist() == [0, 1, 2, 0, 1] and rollout.next_values.tolist() == [3]
    assert rollout.nonterminal.flatten().tolist() == [1, 1, 0, 1, 1] and rollout.returns == [6.0]
    gamma, end = options.gamma, 4.0 if truncates else 0.0
    deltas = [1 + gamma * 2 - 1, 1 + gamma * 3 - 2, 1 + gamma * end - 3, 1 + gamma * 2 - 1, 1 + gamma * 3 - 2]
    decay = gamma * options.gae_lambda
    expected = [
        deltas[0] + decay * deltas[1] + decay**2 * deltas[2],
        deltas[1] + decay * deltas[2],
        deltas[2],
        deltas[3] + decay * deltas[4],
        deltas[4],
    ]
    assert gae(rollout, gamma, options.gae_lambda).flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_workers_have_different_episodes():
    first, second = (Sampler(FEW, rank) for rank in range(2))
    assert not np.isin(first.obs, second.obs).any()


def test_evaluation_repeats():
    weights = run(FEW)[0].weights
    options = dataclasses.replace(FEW, evaluation_episodes=3)
    assert evaluate(weights, options) == evaluate(weights, options)


@pytest.mark.parametrize("environment", ["Pendulum-v1", "Blackjack-v1", "FrozenLake-v1"])
def test_environment_wrong(environment):
    options = dataclasses.replace(FEW, environment=environment)
    rule = f"must have a vector as observation and discrete actions.*{environment}"
    with pytest.raises(ValueError, match=rule):
        Agent.of(make_envs(environment, 1), options)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("workers", 0, "at least 1"),
        ("num_steps", 0, "at least 1"),
        ("total_steps", -5, "at least 1"),
        ("num_minibatches", 513, "at most .* 512"),
        ("gamma", 1.5, "0 to 1"),
        ("gae_lambda", -0.1, "0 to 1"),
        ("learning_rate", 0, "above 0"),
        ("reward_scale", float("nan"), "above 0"),
    ],
)
def test_options_wrong(name, value, rule):
    with pytest.raises(ValueError, match=f"Options {name} must be {rule}.*, not {value}"):
        Options(**{name: value})


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "workers"), [(1, 4), (2, 2), (3, 8)])
def test_cart_pole_is_solved_and_the_curve_does_not_collapse(seed, workers):
    options = Options(seed=seed, workers=workers)
    result = run(options)[0]
    assert np.mean(evaluate(result.weights, options)) >= options.solved_return
    curve = np.array([point.mean_return for point in result.curve if point.steps > options.total_steps / 10])
    assert (np.maximum.accumulate(curve) - curve).max() < 100

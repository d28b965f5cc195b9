"""A2C against its definition, and trainings over the golden switch."""

import dataclasses

import numpy as np
import pytest
import torch

from examples.ppo import Rollout
from examples.torchrun.a2c import Options, loss, make_agent, train
from examples.torchrun.environments import Environments
from examples.torchrun.run import weights_sha256

FEW = Options(num_envs=2, num_steps=4, total_steps=2 * 2 * 4 * 5, hidden=4, checkpoint_interval=3)


def test_the_loss_is_that_of_n_step_returns():
    """The definition, by numpy, from the outputs of the networks."""
    options = dataclasses.replace(FEW, gae_lambda=1.0, gamma=0.9, ent_coef=0.1, vf_coef=0.25)
    agent = make_agent(Environments(options), options)
    rng = np.random.default_rng(1)
    obs = torch.from_numpy(rng.normal(size=(4, 2, 4)).astype(np.float32))
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter += torch.from_numpy(0.3 * rng.normal(size=parameter.shape)).float()
        logits, values = (each.double().numpy() for each in agent(obs))
    actions, rewards = rng.integers(0, 2, (4, 2)), rng.normal(size=(4, 2))
    nonterminal, next_values = np.array([[1, 1], [0, 1], [1, 1], [1, 0]]), rng.normal(size=2)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = 0.0
    for k in range(2):
        following = next_values[k]
        for t in reversed(range(4)):
            following = rewards[t, k] + 0.9 * nonterminal[t, k] * following  # the n-step return from here
            expected += -np.log(probabilities[t, k, actions[t, k]]) * (following - values[t, k])
            expected += 0.25 * 0.5 * (values[t, k] - following) ** 2
            expected += 0.1 * (probabilities[t, k] * np.log(probabilities[t, k])).sum()
    rollout = Rollout(
        obs=obs,
        actions=torch.from_numpy(actions),
        logprobs=torch.zeros(4, 2),
        values=torch.from_numpy(values).float(),
        rewards=torch.from_numpy(rewards).float(),
        nonterminal=torch.from_numpy(nonterminal).float(),
        next_values=torch.from_numpy(next_values).float(),
        returns=[],
    )
    assert loss(agent, rollout, options).item() == pytest.approx(expected / 8, rel=1e-5)


def test_the_same_seed_gives_the_same_weights_at_all_workers_and_on_repeat(train_together):
    first, again = train_together(train, FEW), train_together(train, FEW)
    assert len({weights_sha256(learner.agent) for learner in first + again}) == 1
    assert first[0].updates == 5 and first[0].steps == 80
    other = train_together(train, dataclasses.replace(FEW, seed=2))
    assert weights_sha256(other[0].agent) != weights_sha256(first[0].agent)


def test_a_training_that_goes_on_from_a_checkpoint_ends_with_the_same_state(
    train_together, require_equal_states, tmp_path
):
    whole = train_together(train, FEW, checkpoint=tmp_path / "c.pt")
    resumed = train_together(train, FEW, resume=tmp_path / "c.pt")
    assert torch.load(tmp_path / "c.pt", weights_only=True)["updates"] == 3
    for learner in resumed:
        require_equal_states(whole[0], learner)

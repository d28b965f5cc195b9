"""PPO with vectors as actions against its definition, and trainings over the golden switch."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from examples.torchrun.environments import Environments
from examples.torchrun.ppo import Options, loss, make_agent, train
from examples.torchrun.run import weights_sha256

FEW = Options(
    environment="Pendulum-v1",
    num_envs=2,
    num_steps=8,
    total_steps=2 * 2 * 8 * 3,
    epochs=2,
    hidden=4,
    value_hidden=3,
    checkpoint_interval=8,
)


def test_the_loss_of_actions_that_are_vectors_is_the_clipped_one():
    """The definition, row by row, from the outputs of the networks."""
    options = dataclasses.replace(FEW, ent_coef=0.1, vf_coef=0.25, clip_coef=0.2)
    agent, rng = make_agent(Environments(options), options), np.random.default_rng(1)
    with torch.no_grad():
        agent.log_std.fill_(-0.5)
    columns = {
        "obs": rng.normal(size=(6, 3)),
        "actions": rng.normal(size=(6, 1)),
        "logprobs": rng.normal(-1, 0.3, size=6),
        "advantages": rng.normal(size=6),
        "returns": rng.normal(size=6),
    }
    batch = {name: torch.from_numpy(column).float() for name, column in columns.items()}
    means, values = (each.double().detach().numpy() for each in agent(batch["obs"]))
    std, expected, clipped = math.exp(-0.5), 0.0, 0
    for k in range(6):
        density = math.exp(-((columns["actions"][k, 0] - means[k, 0]) ** 2) / (2 * std**2)) / (
            std * math.sqrt(2 * math.pi)
        )
        ratio, advantage = density / math.exp(columns["logprobs"][k]), columns["advantages"][k]
        expected -= min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
        clipped += ratio * advantage > min(max(ratio, 0.8), 1.2) * advantage
        expected += 0.25 * 0.5 * (values[k] - columns["returns"][k]) ** 2
        expected -= 0.1 * math.log(std * math.sqrt(2 * math.pi * math.e))
    assert 0 < clipped < 6
    assert loss(agent, batch, options).item() == pytest.approx(expected / 6, rel=1e-5)


def test_the_same_seed_gives_the_same_weights_at_all_workers_and_on_repeat(train_together):
    learners = train_together(train, FEW) + train_together(train, FEW)
    assert len({weights_sha256(learner.agent) for learner in learners}) == 1
    assert learners[0].steps == 96


def test_a_training_that_goes_on_from_a_checkpoint_ends_with_the_same_state(
    train_together, require_equal_states, tmp_path
):
    whole = train_together(train, FEW, checkpoint=tmp_path / "c.pt")
    resumed = train_together(train, FEW, resume=tmp_path / "c.pt")
    assert torch.load(tmp_path / "c.pt", weights_only=True)["updates"] == 8
    for learner in resumed:
        require_equal_states(whole[0], learner)

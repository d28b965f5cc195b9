"""DQN against its definition, and trainings over the golden switch."""

import dataclasses

import numpy as np
import pytest
import torch

from examples.torchrun.dqn import Options, epsilon, loss, make_agent, train
from examples.torchrun.environments import Environments
from examples.torchrun.run import weights_sha256

FEW = Options(num_envs=2, total_steps=2 * 2 * 2 * 9, learning_starts=8, batch_size=4, hidden=4, steps_per_update=2)


@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_that_of_td_errors(double):
    """The definition, row by row, from the outputs of the networks."""
    agent, rng = make_agent(Environments(FEW), FEW), np.random.default_rng(1)
    obs, next_obs = (rng.normal(size=(6, 4)).astype(np.float32) for _ in range(2))
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter += torch.linspace(-1, 1, parameter.numel()).view_as(parameter)
        online = agent.online(torch.from_numpy(obs)).double().numpy()
        target = agent.target(torch.from_numpy(next_obs)).double().numpy()
        chooser = (agent.online if double else agent.target)(torch.from_numpy(next_obs)).double().numpy()
    actions, rewards = rng.integers(0, 2, 6), 2 * rng.normal(size=6).astype(np.float32)
    discounts = np.array([0.9, 0.9, 0, 0.9, 0, 0.9], np.float32)
    losses = []
    for k in range(6):
        error = abs(rewards[k] + discounts[k] * target[k, chooser[k].argmax()] - online[k, actions[k]])
        losses.append(error**2 / 2 if error < 1 else error - 1 / 2)
    assert min(losses) < 0.5 < max(losses)
    columns = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs, "discounts": discounts}
    batch = {name: torch.from_numpy(column) for name, column in columns.items()}
    assert loss(agent, batch, double=double).item() == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("environment", ["Pendulum-v1", "Blackjack-v1"])
def test_environment_wrong(environment):
    envs = Environments(dataclasses.replace(FEW, environment=environment))
    with pytest.raises(
        ValueError, match=r"environment must have vectors or frames as observations, and discrete actions"
    ):
        make_agent(envs, FEW)


def test_the_share_of_random_actions_falls_linearly():
    options = dataclasses.replace(FEW, final_epsilon=0.1, exploration_steps=1000)
    assert [epsilon(steps, options) for steps in (0, 500, 1000, 9999)] == pytest.approx([1, 0.55, 0.1, 0.1])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_weights_and_targets_are_equal_at_all_workers(train_together, asynchronous):
    options = dataclasses.replace(FEW, asynchronous=asynchronous)
    learners = train_together(train, options)
    if not asynchronous:  # in which order asynchronous gradients are ready is not the seed's to say
        learners += train_together(train, options)
        assert learners[0].updates == 8 and learners[0].steps == 72
    assert len({weights_sha256(learner.agent) for learner in learners}) == 1


def test_the_target_network_is_copied_at_its_interval(train_together):
    online, target = (
        [
            torch.nn.utils.parameters_to_vector(network(learner).parameters())
            for interval in (4, 5)
            for learner in train_together(train, dataclasses.replace(FEW, target_interval=interval))[:1]
        ]
        for network in (lambda learner: learner.agent.online, lambda learner: learner.agent.target)
    )
    assert torch.equal(online[0], target[0])  # of 8 updates the last one is a fourth one
    assert not torch.equal(online[1], target[1])

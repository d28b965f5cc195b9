"""DDPG against its definition, and trainings over the golden switch."""

import dataclasses

import numpy as np
import pytest
import torch

from examples.torchrun.ddpg import Options, backward, losses, make_agent, make_optimizer, train
from examples.torchrun.environments import Environments
from examples.torchrun.run import weights_sha256

FEW = Options(total_steps=2 * (16 + 6), learning_starts=16, batch_size=4, hidden=4, checkpoint_interval=3)


@pytest.fixture
def agent():
    agent = make_agent(Environments(FEW), FEW)
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in agent.parameters():  # the targets, too
            parameter += torch.from_numpy(0.3 * rng.normal(size=parameter.shape)).float()
    return agent.double()


@pytest.fixture
def batch():
    rng = np.random.default_rng(2)
    shapes = {"obs": (5, 3), "actions": (5, 1), "rewards": (5,), "next_obs": (5, 3)}
    columns = {name: torch.from_numpy(rng.normal(size=shape)) for name, shape in shapes.items()}
    return columns | {"discounts": torch.tensor([0.9, 0, 0.9, 0.9, 0], dtype=torch.float64)}


def outputs(network, rows):
    """What a network of two hidden layers returns, by numpy."""
    layers = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    for layer in layers:
        rows = rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        rows = np.maximum(rows, 0) if layer is not layers[-1] else rows
    return rows


def test_the_losses_are_those_of_the_definition(agent, batch):
    columns = {name: column.numpy() for name, column in batch.items()}
    target_actor, target_critic = agent.targets
    value = lambda critic, obs, actions: outputs(critic, np.hstack([obs, actions]))[:, 0]
    act = lambda actor, obs: 2 * np.tanh(outputs(actor, obs))  # the torque of Pendulum is -2 to 2
    following = value(target_critic, columns["next_obs"], act(target_actor, columns["next_obs"]))
    targets = columns["rewards"] + columns["discounts"] * following
    errors = targets - value(agent.critic, columns["obs"], columns["actions"])
    actor_loss, critic_loss = losses(agent, batch)
    own = value(agent.critic, columns["obs"], act(agent.actor, columns["obs"]))
    assert actor_loss.item() == pytest.approx(-own.mean())
    assert critic_loss.item() == pytest.approx((errors**2).mean())


@pytest.mark.parametrize("number", [0, 1], ids=["actor", "critic"])
def test_each_network_has_the_gradient_of_its_own_loss(agent, batch, number):
    """By differences of the loss."""
    backward(agent, batch)
    for parameter in (agent.actor, agent.critic)[number].parameters():
        place = tuple(size - 1 for size in parameter.shape)
        values = []
        with torch.no_grad():
            for shift in (1e-6, -2e-6):
                parameter[place] += shift
                values.append(losses(agent, batch)[number].item())
            parameter[place] += 1e-6
        assert parameter.grad[place].item() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-8)


def test_environment_wrong():
    envs = Environments(dataclasses.replace(FEW, environment="CartPole-v1"))
    with pytest.raises(ValueError, match=r"environment must have vectors as observations and actions, not Discrete\(2"):
        make_agent(envs, FEW)


def test_the_target_networks_follow_by_a_share(agent):
    network = [agent.actor[0].weight, agent.critic[4].bias]
    target = [agent.targets[0][0].weight, agent.targets[1][4].bias]
    expected = [0.75 * old.detach().numpy() + 0.25 * new.detach().numpy() for old, new in zip(target, network)]
    agent.follow(0.25)
    for weights, each in zip(target, expected):
        np.testing.assert_allclose(weights.detach().numpy(), each)


def test_actor_and_critic_have_their_own_learning_rate():
    options = dataclasses.replace(FEW, learning_rate=0.25, critic_learning_rate=0.5)
    agent = make_agent(Environments(options), options)
    groups = make_optimizer(agent, options).param_groups
    assert [group["lr"] for group in groups] == [0.25, 0.5]
    assert [len(group["params"]) for group in groups] == [6, 6]


def test_the_same_seed_gives_the_same_weights_at_all_workers_and_on_repeat(train_together):
    learners = train_together(train, FEW) + train_together(train, FEW)
    assert len({weights_sha256(learner.agent) for learner in learners}) == 1
    assert learners[0].updates == 7 and learners[0].steps == 44


def test_a_training_goes_on_from_the_state_of_its_checkpoint(train_together, tmp_path):
    """Weights, targets, moments and counts are exact. The memory is not in the checkpoint."""
    train_together(train, FEW, checkpoint=tmp_path / "c.pt")
    saved = torch.load(tmp_path / "c.pt", weights_only=True)
    states = []

    def look(options, start):
        agent = make_agent(Environments(options), options)
        states.append(start(agent, make_optimizer(agent, options)).state())

    train_together(look, FEW, resume=tmp_path / "c.pt")
    assert saved["updates"] == 6
    for state in states:
        torch.testing.assert_close(state, saved, rtol=0, atol=0)
    [resumed, other] = train_together(train, FEW, resume=tmp_path / "c.pt")
    assert resumed.updates == 7 and weights_sha256(resumed.agent) == weights_sha256(other.agent)

"""Dueling networks: the head, and the equality of the actors' arithmetic with the learner's."""

import numpy as np
import pytest
import torch
from torch import nn

from examples.common.networks import DuelingArrays, frame_network, vector_network

pytestmark = pytest.mark.usefixtures("one_thread")


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy().copy()


def observations(rows, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


@pytest.mark.parametrize("actions", [2, 3, 7])
def test_the_mean_over_actions_is_the_value(actions):
    net, obs = vector_network(4, actions, 16, seed=1), torch.from_numpy(observations(9))
    values = net(obs)
    assert values.shape == (9, actions)
    assert torch.allclose(values.mean(-1), net.value(net.body(obs))[:, 0], atol=1e-6)
    advantages = net.advantage(net.body(obs))
    assert torch.allclose(values - values[:, :1], advantages - advantages[:, :1], atol=1e-6)


def test_a_constant_in_all_advantages_changes_nothing():
    net, obs = vector_network(4, 3, 16, seed=1), torch.from_numpy(observations(9))
    before = net(obs)
    with torch.no_grad():
        net.advantage.bias += 5
    assert torch.allclose(net(obs), before, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("hidden,actions", [(1, 2), (8, 3), (64, 2)])
def test_arrays_compute_what_the_module_computes(hidden, actions, rows):
    net, arrays = vector_network(4, actions, hidden, seed=2), DuelingArrays(4, actions, hidden)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    arrays.load(vector(net))
    obs = observations(rows)
    values = arrays(obs)
    assert values.dtype == np.float32
    assert np.allclose(values, net(torch.from_numpy(obs)).detach().numpy(), atol=1e-5)


def test_the_seed_determines_the_weights():
    assert (vector(vector_network(4, 2, 8, 1)) == vector(vector_network(4, 2, 8, 1))).all()
    assert (vector(vector_network(4, 2, 8, 1)) != vector(vector_network(4, 2, 8, 2))).any()


def test_frames_are_bytes_in_stacks():
    net = frame_network(4, 6, seed=1)
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        values = net(frames)
        assert values.shape == (2, 6) and torch.allclose(net(frames[1:]), values[1:], atol=1e-5)
        assert not torch.allclose(net(255 - frames), values)


def test_weights_wrong():
    arrays = DuelingArrays(4, 2, 8)
    for size in (arrays.size - 1, arrays.size + 1):
        with pytest.raises(ValueError, match=f"must be {arrays.size} numbers"):
            arrays.load(np.zeros(size, np.float32))

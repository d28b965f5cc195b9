"""Weights that a training keeps, and the GIF of an episode that is played from them."""

import hashlib

import numpy as np
import pytest
import torch
from PIL import Image

from examples.policy import Policy
from examples.rollout import HELD_OUT, Agent, episode, evaluate
from examples.training import Options
from examples.watch import frame, watch

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def policy():
    agent = Agent(4, 2, 8, torch.Generator().manual_seed(3))
    weights = torch.nn.utils.parameters_to_vector(agent.parameters()).detach().numpy()
    return Policy(weights=weights, environment="CartPole-v1", hidden=8, seed=3, mean_return=9.5)


def test_a_kept_policy_is_read_as_it_was_written(policy, tmp_path):
    path = tmp_path / "policy.npz"
    policy.save(path)
    again = Policy.load(path)
    assert np.array_equal(again.weights, policy.weights) and again.weights_sha256 == policy.weights_sha256
    assert (again.environment, again.hidden, again.seed, again.mean_return) == ("CartPole-v1", 8, 3, 9.5)
    assert [each.name for each in tmp_path.iterdir()] == ["policy.npz"]


def test_numpy_alone_reads_the_weights_and_their_sha256(policy, tmp_path):
    policy.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as kept:
        assert hashlib.sha256(kept["weights"].tobytes()).hexdigest() == policy.weights_sha256


def test_the_nets_of_a_policy_are_those_of_the_training(policy):
    obs = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))
    agent = Agent(4, 2, 8, torch.Generator().manual_seed(3))
    assert torch.equal(policy.agent().policy(obs), agent.policy(obs))
    assert torch.equal(policy.agent().value(obs), agent.value(obs))


def test_no_file_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.npz does not exist: no training has kept its weights there yet"):
        Policy.load(tmp_path / "policy.npz")


@pytest.mark.parametrize("content", [b"", b"PK\3\4 broken", b"no file of numpy's"])
def test_file_wrong(content, tmp_path):
    (tmp_path / "policy.npz").write_bytes(content)
    with pytest.raises(ValueError, match="is not a policy that a training has kept"):
        Policy.load(tmp_path / "policy.npz")


def test_file_without_the_names_wrong(tmp_path):
    np.savez(tmp_path / "policy.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"is not a policy that a training has kept.*weights"):
        Policy.load(tmp_path / "policy.npz")


def test_too_few_weights_wrong(policy):
    short = Policy(weights=policy.weights[1:], environment="CartPole-v1", hidden=8, seed=3, mean_return=9.5)
    with pytest.raises(ValueError, match="the policy has 250 weights, but its nets have 251 parameters"):
        short.agent()


def test_an_episode_is_that_of_the_evaluation(policy):
    """Its first episode: the same seed, and as many steps."""
    steps = list(episode(policy.agent(), "CartPole-v1", HELD_OUT))
    assert [returned for _, returned in steps] == list(range(len(steps)))
    assert steps[-1][1] == evaluate(policy.weights, Options(hidden=8, evaluation_episodes=1))[0]


def test_a_watched_episode_is_a_gif_of_every_second_step(policy, tmp_path):
    returned = watch(policy, tmp_path / "policy.gif")
    with Image.open(tmp_path / "policy.gif") as gif:
        assert gif.format == "GIF" and gif.n_frames == -(-int(returned) // 2) + 1
        first = np.asarray(gif.convert("RGB"))
        gif.seek(gif.n_frames - 1)
        assert (first != np.asarray(gif.convert("RGB"))).any()
    assert returned == list(episode(policy.agent(), "CartPole-v1", HELD_OUT))[-1][1]


def test_cart_and_pole_are_drawn_where_they_are():
    """Black is the cart, brown the pole: 1 m to the right is 115 pixels, and a pole to the right has its tip there."""

    def columns(obs, colour):
        pixels = np.asarray(frame(np.array(obs, np.float32), "").convert("RGB")).astype(int)
        return np.nonzero((np.abs(pixels - colour).sum(-1) < 30).any(0))[0].mean()

    black, brown = (0, 0, 0), (205, 133, 63)
    assert columns([1, 0, 0, 0], black) - columns([0, 0, 0, 0], black) == pytest.approx(600 / 5.2, abs=1.5)
    assert columns([0, 0, 0.2, 0], brown) > columns([0, 0, 0, 0], brown) + 5 > columns([0, 0, -0.2, 0], brown) + 15


def test_environment_that_cannot_be_drawn_wrong(policy, tmp_path):
    other = Policy(weights=policy.weights, environment="Acrobot-v1", hidden=8, seed=3, mean_return=-500.0)
    with pytest.raises(ValueError, match="only CartPole can be drawn, not 'Acrobot-v1'"):
        watch(other, tmp_path / "policy.gif")

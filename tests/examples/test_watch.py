"""The GIF of an episode that is played with a saved policy."""

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from examples.common.policy import Policy
from examples.ppo import EVALUATION_SEED, Agent, Options, evaluate
from examples.watch import app, draw_frame, load_agent, play_episode, write_gif

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def policy():
    agent = Agent(4, 2, 8, torch.Generator().manual_seed(3))
    weights = torch.nn.utils.parameters_to_vector(agent.parameters()).detach().numpy()
    return Policy(weights=weights, environment="CartPole-v1", hidden=8, seed=3, mean_return=9.5)


def test_the_nets_of_a_policy_are_those_of_the_training(policy):
    obs = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))
    agent = Agent(4, 2, 8, torch.Generator().manual_seed(3))
    assert torch.equal(load_agent(policy).policy(obs), agent.policy(obs))
    assert torch.equal(load_agent(policy).value(obs), agent.value(obs))


def test_too_few_weights_wrong(policy):
    short = Policy(weights=policy.weights[1:], environment="CartPole-v1", hidden=8, seed=3, mean_return=9.5)
    with pytest.raises(ValueError, match="the policy has 250 weights, but its nets have 251 parameters"):
        load_agent(short)


def test_the_episode_is_one_of_the_evaluation(policy):
    """The first episode of the evaluation has the same seed and as many steps."""
    steps = list(play_episode(load_agent(policy), "CartPole-v1", EVALUATION_SEED))
    assert [episode_return for _, episode_return in steps] == list(range(len(steps)))
    assert steps[-1][1] == evaluate(policy.weights, Options(hidden=8, evaluation_episodes=1))[0]


def test_the_gif_has_every_second_step(policy, tmp_path):
    episode_return = write_gif(policy, tmp_path / "policy.gif")
    with Image.open(tmp_path / "policy.gif") as gif:
        assert gif.format == "GIF" and gif.n_frames == -(-int(episode_return) // 2) + 1
        first = np.asarray(gif.convert("RGB"))
        gif.seek(gif.n_frames - 1)
        assert (first != np.asarray(gif.convert("RGB"))).any()
    assert episode_return == list(play_episode(load_agent(policy), "CartPole-v1", EVALUATION_SEED))[-1][1]


def test_cart_and_pole_are_drawn_where_they_are():
    """Black is the cart, brown the pole: 1 m to the right is 115 pixels, and a pole to the right has its tip there."""

    def columns(obs, colour):
        pixels = np.asarray(draw_frame(np.array(obs, np.float32), "").convert("RGB")).astype(int)
        return np.nonzero((np.abs(pixels - colour).sum(-1) < 30).any(0))[0].mean()

    black, brown = (0, 0, 0), (205, 133, 63)
    assert columns([1, 0, 0, 0], black) - columns([0, 0, 0, 0], black) == pytest.approx(600 / 5.2, abs=1.5)
    assert columns([0, 0, 0.2, 0], brown) > columns([0, 0, 0, 0], brown) + 5 > columns([0, 0, -0.2, 0], brown) + 15


def test_environment_that_cannot_be_drawn_wrong(policy, tmp_path):
    other = Policy(weights=policy.weights, environment="Acrobot-v1", hidden=8, seed=3, mean_return=-500.0)
    with pytest.raises(ValueError, match="only CartPole can be drawn, not 'Acrobot-v1'"):
        write_gif(other, tmp_path / "policy.gif")


@pytest.fixture
def command(tmp_path):
    """Run `python -m examples.watch` on a folder, and return the exit code and the output as one line."""

    def call():
        run = CliRunner().invoke(app, [str(tmp_path / "out")])
        return run.exit_code, " ".join(run.output.split())

    return call


def test_without_a_policy_the_command_names_what_trains_one(command, tmp_path):
    code, output = command()
    assert code == 1 and "policy.npz does not exist: no training has saved a policy there yet" in output
    assert "`make demo` trains a policy." in output and not (tmp_path / "out").exists()


def test_the_command_plays_the_saved_policy(command, tmp_path):
    (tmp_path / "out").mkdir()
    net = (4 + 1) * 2 + (2 + 1) * 2
    weights = np.zeros(net + (2 + 1) * 2 + net + (2 + 1), np.float32)
    policy = Policy(weights=weights, environment="CartPole-v1", hidden=2, seed=5, mean_return=9.0)
    policy.save(tmp_path / "out" / "policy.npz")
    code, output = command()
    assert code == 0 and f"seed 5, mean return 9.0 in the evaluation, sha256 {policy.weights_sha256[:16]}" in output
    assert "policy.gif: one unseen episode, return" in output
    assert (tmp_path / "out" / "policy.gif").read_bytes().startswith(b"GIF8")


SOUND = dict(weights=np.zeros(9155, np.float32), environment="CartPole-v1", hidden=64, seed=1, mean_return=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environment": "CartPole-v99"}, "Gymnasium does not make the policy's environment 'CartPole-v99'"),
        ({"hidden": -1}, "`hidden` must be"),
        ({"weights": np.full(9155, np.nan, np.float32)}, "finite numbers"),
        ({"weights": np.zeros((9155, 1), np.float32)}, "one vector"),
        ({"weights": np.zeros(7, np.float32)}, "the policy has 7 weights"),
    ],
)
def test_policy_wrong(command, tmp_path, change, message):
    (tmp_path / "out").mkdir()
    np.savez(tmp_path / "out" / "policy.npz", **(SOUND | change))
    code, output = command()
    assert code == 1 and "no policy can be played: " in output and message in output


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda out: (out.mkdir(), (out / "policy.npz").mkdir()), "policy.npz cannot be read: Is a directory"),
        (lambda out: out.write_text("x"), "policy.npz cannot be read: Not a directory"),
        (lambda out: (out.mkdir(), (out / "policy.npz").write_bytes(b"PK\x03\x04")), "is not a saved policy"),
        (
            lambda out: (out.mkdir(), np.savez(out / "policy.npz", **SOUND), (out / "policy.gif").mkdir()),
            "policy.gif cannot be written: Is a directory",
        ),
    ],
)
def test_file_that_cannot_be_used_wrong(command, tmp_path, damage, message):
    damage(tmp_path / "out")
    code, output = command()
    assert code == 1 and message in output

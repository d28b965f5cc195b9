"""Worker processes against the golden model of the switch over UDP."""

import io
import json
import multiprocessing
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from examples.common.command import exit_code
from examples.common.display import print_results
from examples.common.launch import launch
from examples.common.policy import Policy
from examples.common.processes import LaunchError
from examples.ppo import Options, app, evaluate, train
from iswitch.config import Config
from sim.bench.udp_model import Faults, UdpModel

FEW = Options(workers=2, num_envs=1, num_steps=16, total_steps=2 * 16 * 2, epochs=1, hidden=8, evaluation_episodes=2)
PPO = dict(train=train, evaluate=evaluate)
LONG = Options(workers=2, num_envs=1, num_steps=16, total_steps=1_000_000, hidden=8)


def addresses(model):
    return [model.address(port) for port in range(model.config.ports)]


@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.05, duplication=0.05, reordering=0.05)])
def test_every_contribution_is_added_once(faults, tmp_path):
    with UdpModel(faults=faults) as model:
        summary = launch(FEW, addresses(model), tmp_path, **PPO)
    state = 3 * summary["parameters"] + 4  # weights, two moments, two counters of 8 bytes
    segments = 1 + -(-state // Config().elements) + 2 * (1 + 2)
    assert summary["contributions_accepted"] == summary["contributions_expected"] == FEW.workers * segments
    assert len(set(summary["weights_sha256"])) == 1
    assert summary["allreduces"] == 2 * (1 + 2)
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_an_unsolved_environment_is_reported_and_the_weights_are_saved(tmp_path):
    text = io.StringIO()
    with UdpModel() as model:
        summary = launch(FEW, addresses(model), tmp_path, **PPO, console=Console(file=text, width=200))
    output = " ".join(text.getvalue().split())
    assert summary["solved"] is False and summary["mean_reward_eval"] < FEW.solved_return
    assert f"(worst {min(summary['rewards_eval']):.0f}): NOT SOLVED, the threshold is 475" in output
    assert (
        f"The policy does not solve CartPole-v1: its mean return of {summary['mean_reward_eval']:.1f} is below 475."
        in output
    )
    assert "Try another seed (--seed 2), or train for longer (--total-steps 128)." in output
    policy = Policy.load(tmp_path / "policy.npz")
    assert f"{tmp_path}/policy.npz" in output and {policy.weights_sha256} == set(summary["weights_sha256"])
    assert evaluate(policy.weights, FEW) == summary["rewards_eval"]
    assert policy.mean_return == summary["mean_reward_eval"]

    text.truncate(0)
    print_results(summary | {"solved": True}, tmp_path, Console(file=text, width=200))
    output = text.getvalue()
    assert (
        ": solved, the threshold is 475" in output and "does not solve" not in output and "another seed" not in output
    )


def test_a_training_that_does_not_solve_the_environment_fails(tmp_path):
    few = [
        "--workers",
        "1",
        "--num-envs",
        "1",
        "--num-steps",
        "16",
        "--total-steps",
        "16",
        "--epochs",
        "1",
        "--evaluation-episodes",
        "1",
    ]
    with UdpModel() as model:
        run = CliRunner().invoke(app, ["--switch", ",".join(addresses(model)), "--out", str(tmp_path), *few])
    assert run.exit_code == 1 and "The policy does not solve CartPole-v1" in run.output


@pytest.mark.parametrize("returned, code", [(None, 0), ({}, 0), (True, 0), (False, 1)])
def test_only_false_is_a_failure(returned, code):
    assert exit_code(lambda: returned) == code


@pytest.mark.parametrize("rank", [0, 1])
def test_the_others_continue_without_a_killed_worker_which_comes_back_with_their_weights(rank, tmp_path):
    options = replace(LONG, workers=3, total_steps=16 * 3 * 400, solved_return=1000.0, evaluation_episodes=2)
    with UdpModel() as model:
        summary = launch(options, addresses(model), tmp_path, **PPO, kill=rank)
    assert len(summary["weights_sha256"]) == 3 and len(set(summary["weights_sha256"])) == 1
    counters = summary["switch_counters"]
    assert (counters["EVICTED"], counters["ADMITTED"]) == (1, 1)
    missing = [tuple(point["missing"]) for point in summary["curve"]]
    if rank:  # else it is the curve of the worker that came back, which begins afterwards
        assert set(missing) == {(), (rank,)} and missing[0] == missing[-1] == ()
    assert summary["contributions_expected"] is None


def test_without_restarts_the_death_of_a_worker_ends_all(tmp_path):
    with UdpModel() as model, pytest.raises(LaunchError, match="died"):
        launch(LONG, addresses(model), tmp_path, **PPO, restarts=0, kill=1)
    assert not multiprocessing.active_children()


def test_death_of_the_switch_ends_all(tmp_path):
    def check() -> None:
        if multiprocessing.active_children():
            raise LaunchError("the switch has ended")

    with UdpModel() as model, pytest.raises(LaunchError, match="has ended"):
        launch(LONG, addresses(model), tmp_path, **PPO, check=check)
    assert not multiprocessing.active_children()

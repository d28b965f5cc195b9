"""The scripts under torchrun, and how a run ends."""

import json
import math
import re

import pytest
import torch

from examples.common.processes import LaunchError
from examples.torchrun.run import require_equal
from iswitch.report.training import read_trainings
from sim.bench.udp_model import UdpModel, together

NAMES = ["a2c", "ppo", "ddpg", "dqn"]


@pytest.mark.parametrize("differs", [False, True])
def test_all_workers_notice_that_the_weights_of_one_differ(differs):
    def body(worker):
        agent = torch.nn.Linear(2, 2)
        with torch.no_grad():
            for parameter in agent.parameters():
                parameter.fill_(1 + 1e-7 * (differs and worker.rank == 1))
        if differs:
            with pytest.raises(LaunchError, match=r"weights of 1 workers differ from those of rank 0"):
                require_equal(worker, agent)
        else:
            require_equal(worker, agent)

    with UdpModel() as model:
        together(model, 3, body)


FEW = ["--stop-return", "nan", "--solved-return", "nan", "--evaluation-episodes", "1", "--total-steps"]


@pytest.mark.parametrize("name", NAMES)
def test_torchrun_trains_writes_its_files_and_goes_on(name, torchrun, tmp_path):
    done = torchrun(name, *FEW, "1600")
    assert done.returncode == 0, done.stderr
    assert "NOT REACHED" not in done.stdout and re.search(r"mean return \S+ of 1 unseen episodes", done.stdout)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["environment_steps"] >= 1600 and summary["workers"] == 2 and len(summary["rewards_eval"]) == 1
    assert min(summary["seconds"].values()) > 0 and math.isfinite(summary["mean_reward_eval"])
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("tensorboard/events.*"))
    [training] = read_trainings(tmp_path)
    assert [point[:2] for point in training.curve] == [(at["update"], at["steps"]) for at in summary["curve"]]
    assert training.facts["workers"] == "2" and sum(training.split.values()) == pytest.approx(
        sum(summary["seconds"].values())
    )
    last = training.curve[-1]
    assert min(last.parts.values()) > 0 and 0 < last.latency_ms["p50"] <= last.latency_ms["p99"]
    again = torchrun(name, *FEW, "3200", "--resume", tmp_path / "final.pt")
    assert again.returncode == 0, again.stderr
    more = json.loads((tmp_path / "summary.json").read_text())
    assert more["environment_steps"] >= 3200 and more["updates"] > summary["updates"]


@pytest.mark.parametrize("name", NAMES)
def test_torchrun_trains_asynchronously(name, torchrun, tmp_path):
    done = torchrun(name, "--asynchronous", *FEW, "1600")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["environment_steps"] >= 1600 and summary["updates"] > 1


def test_a_goal_that_is_not_reached_is_a_failure(torchrun):
    done = torchrun("a2c", "--total-steps", "100", "--evaluation-episodes", "1", world=1)
    assert done.returncode != 0 and "of 1 unseen episodes: NOT REACHED, the goal is 475" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_first_preset_reaches_its_goal(name, torchrun):
    done = torchrun(name, world=4)
    assert done.returncode == 0 and "unseen episodes: reached, the goal is" in done.stdout, done.stdout + done.stderr

"""Worker processes against the golden model of the switch over UDP."""

import json
import multiprocessing
import time

import pytest
from iswitch.rl.launch import LaunchError, launch
from iswitch.rl.ppo import Options
from sim.bench.udp_model import Faults, UdpModel

FEW = Options(workers=2, environments=1, steps=16, total_steps=2 * 16 * 2, epochs=1, hidden=8, evaluation_episodes=2)
LONG = Options(workers=2, environments=1, steps=16, total_steps=1_000_000, hidden=8)


def addresses(model):
    return [model.address(port) for port in range(model.config.ports)]


@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.05, duplication=0.05, reordering=0.05)])
def test_every_contribution_is_added_once(faults, tmp_path):
    with UdpModel(faults=faults) as model:
        summary = launch(FEW, addresses(model), tmp_path)
    assert summary["contributions_accepted"] == summary["contributions_expected"] == FEW.workers * (1 + 2 * (1 + 2))
    assert len(set(summary["weights_sha256"])) == 1
    assert summary["allreduces"] == 2 * (1 + 2)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_death_of_a_worker_ends_all(tmp_path):
    def kill() -> None:
        if deadline[0] < time.monotonic() and not killed:
            children = multiprocessing.active_children()
            killed.append(children[0].name)
            children[0].kill()

    killed, deadline = [], [time.monotonic() + 3]
    with UdpModel() as model, pytest.raises(LaunchError, match="died"):
        launch(LONG, addresses(model), tmp_path, watch=kill)
    assert killed and not multiprocessing.active_children()


def test_death_of_the_switch_ends_all(tmp_path):
    def watch() -> None:
        if multiprocessing.active_children():
            raise LaunchError("the switch is gone")

    with UdpModel() as model, pytest.raises(LaunchError, match="is gone"):
        launch(LONG, addresses(model), tmp_path, watch=watch)
    assert not multiprocessing.active_children()

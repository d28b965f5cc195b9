"""Processes of actors and a learner against the golden model of the switch over UDP."""

import json
import multiprocessing
from dataclasses import replace

import pytest

from examples.apex import Options, train
from examples.common.processes import LaunchError
from iswitch.config import Config, Replay
from sim.bench.udp_model import Faults, UdpModel

FEW = Options(
    actors=2,
    num_envs=2,
    add_size=24,
    batch_size=32,
    samples_per_insert=2.0,
    learning_starts=60,
    publish_interval=6,
    evaluation_interval=12,
    steps=24,
    hidden=8,
    evaluation_episodes=2,
)
DETERMINISTIC = replace(FEW, deterministic=True)
LONG = replace(FEW, steps=120_000)


def switch(faults=None):
    return UdpModel(Config(replay=Replay(capacity=256, sessions=4, log_bytes=1 << 14)), faults=faults)


def addresses(model):
    return [model.address(port) for port in range(model.config.ports)]


@pytest.mark.parametrize("faults", [None, Faults(loss=0.05, duplication=0.05, reordering=0.05)], ids=str)
def test_everything_is_added_once(faults, tmp_path):
    with switch(faults) as model:
        summary = train(FEW, addresses(model), tmp_path)
        table = model.switch.service.tables[0]
        assert table.adds == summary["items_added"] == summary["items_sent"] and not any(
            place.open for place in model.switch.service.sessions
        )
    assert summary["items_sampled"] == FEW.steps * FEW.batch_size and summary["learner_steps"] == FEW.steps
    assert summary["versions"] == 1 + FEW.steps // FEW.publish_interval
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_in_deterministic_order_a_bad_network_changes_neither_samples_nor_weights(tmp_path):
    found = []
    for faults in (None, Faults(loss=0.05, duplication=0.05, reordering=0.05)):
        with switch(faults) as model:
            found.append(train(DETERMINISTIC, addresses(model), tmp_path))
    assert (
        found[0]["weights_sha256"] == found[1]["weights_sha256"]
        and found[0]["samples_sha256"] == found[1]["samples_sha256"]
    )
    assert found[0]["items_added"] == found[1]["items_added"]


def test_a_table_that_is_in_use_is_refused(tmp_path):
    with switch() as model:
        train(FEW, addresses(model), tmp_path)
        with pytest.raises(LaunchError, match="items are in the table already"):
            train(FEW, addresses(model), tmp_path)


def test_death_of_the_switch_ends_all(tmp_path):
    def check() -> None:
        if multiprocessing.active_children():
            raise LaunchError("the switch has ended")

    with switch() as model, pytest.raises(LaunchError, match="has ended"):
        train(LONG, addresses(model), tmp_path, check=check)
    assert not multiprocessing.active_children()


def test_death_of_an_actor_ends_all(tmp_path):
    def check() -> None:
        for process in multiprocessing.active_children():
            if process.name == "actor 1":
                process.kill()

    with switch() as model, pytest.raises(LaunchError, match="actor 1 died"):
        train(LONG, addresses(model), tmp_path, check=check)
    assert not multiprocessing.active_children()

"""Learners and actors on Ray. Ray is not among what set-up installs, so what needs it is in the slow tier, and fails
without Ray."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from examples.common.processes import LaunchError
from examples.ray_apex import Options, train
from iswitch.config import Config, Replay
from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport
from iswitch.wire import Register
from iswitch.wire.replay import ReplayOutcome
from sim.bench.udp_model import UdpModel

STEPS, LEARNERS, ACTORS, BATCH = 64, 2, 2, 16


def test_without_ray_the_example_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LaunchError, match="needs Ray: `make ray`"):
        train(Options(), ["127.0.0.1:1"])


def test_a_table_that_is_not_empty_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", pytest)  # is not used
    from examples.ray_apex import _client

    with UdpModel(Config(replay=Replay(capacity=64, log_bytes=4096))) as model:
        with _client(Options(), model.address(0)) as client:
            row = {name: [0] * max(1, field.size // field.wire_dtype.itemsize) for name, field in client.spec.items()}
            client.extend({name: [v] if client.spec[name].axes else v for name, v in row.items()})
        with pytest.raises(LaunchError, match="1 items are in the table already"):
            train(Options(), [model.address(1)])


def test_options_wrong():
    with pytest.raises(ValueError, match="deterministic must be False"):
        Options(deterministic=True)


@pytest.fixture
def addresses():
    """The ports of `iswitch switch` with a replay service."""
    command = ["switch", "--udp-base", "0", "--replay", "capacity=2048,log_bytes=65536"]
    switch = subprocess.Popen([sys.executable, "-m", "iswitch.tools.cli", *command], stderr=subprocess.PIPE, text=True)
    text = ""
    while "Ctrl-C" not in text:
        text += switch.stderr.readline()
    yield re.findall(r"[\d.]+:\d+", text)
    switch.terminate()
    switch.wait()
    switch.stderr.close()


@pytest.mark.slow
def test_learners_on_ray_end_with_equal_weights_and_every_transition_is_in_the_table(addresses):
    options = Options(
        learners=LEARNERS,
        actors=ACTORS,
        steps=STEPS,
        batch_size=BATCH,
        learning_starts=64,
        publish_interval=16,
        evaluation_interval=16,
        evaluation_episodes=2,
    )
    summary = train(options, addresses)  # raises an error if weights differ
    assert summary["learner_steps"] == STEPS and summary["contributions"] == [STEPS * LEARNERS] * LEARNERS
    assert summary["items_sampled"] == STEPS * BATCH * LEARNERS
    transport = UdpTransport(addresses[0])
    try:
        registers = Control(transport, address=addresses[0]).registers
        outcomes = dict(zip(ReplayOutcome, registers(Register.REPLAY_OUTCOMES, len(ReplayOutcome))))
    finally:
        transport.close()
    assert outcomes[ReplayOutcome.DONE] > STEPS * LEARNERS
    assert not outcomes[ReplayOutcome.LENGTH] and not outcomes[ReplayOutcome.KIND]
    assert summary["items_added"] == summary["adds"] >= summary["items_sampled"] / options.samples_per_insert - 512

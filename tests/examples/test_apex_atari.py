"""Atari transitions through a client and the golden switch, in virtual time: samples are as added, in few bytes."""

from dataclasses import replace

import numpy as np
import pytest

from examples.apex_atari import FIELDS, NAIVE_BYTES, Options, digests, launch, train
from examples.common.processes import LaunchError
from iswitch.config import Config, Replay
from iswitch.replay import ReplayClient
from sim.bench.replay_network import Network
from sim.bench.udp_model import UdpModel

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(transitions=96, add_size=16, batches=3, batch_size=16)
SMALL = Config(ports=4, members=4, replay=Replay(capacity=32, sessions=4, log_bytes=1 << 20))


def clients(**faults):
    network = Network(SMALL, **faults)
    return [ReplayClient(network.transport(), FIELDS) for _ in range(2)]


def test_the_bytes_of_a_naive_transition():
    assert NAIVE_BYTES == 225_792


@pytest.mark.parametrize("faults", [{}, {"loss": 0.05, "late": 0.1}], ids=str)
def test_frames_are_sent_once_and_sampled_as_they_were(faults):
    actor, learner = clients(**faults)
    seen = []
    with actor, learner:
        progress = train(actor, learner, FEW, lambda point, batch: seen.append(batch))
        table = actor.statistics()
    assert (
        progress.added == table.adds == 96
        and table.size == 32
        and progress.sampled == 3 * 16
        and progress.overwritten == 0
    )
    assert table.frames_written + table.frames_shared == 96 * 2 * 4 and table.frames_written <= 96 + FEW.n_step + 3
    assert NAIVE_BYTES / progress.bytes_per_transition >= 30
    sampled = [batch for batch in seen if batch]
    assert len(seen) == 6 and len(sampled) == 3 and all(batch["obs"].shape == (16, 4, 84, 84) for batch in sampled)


def test_other_bytes_than_those_added_are_noticed():
    actor, learner = clients()

    class Wrong:
        def sample(self, *args, **given):
            batch = learner.sample(*args, **given)
            batch.data["next_obs"][3, 2, 40, 40] ^= 1
            return batch

    with actor, learner, pytest.raises(RuntimeError, match="was sampled with other bytes"):
        train(actor, Wrong(), FEW)


def test_every_field_of_a_row_counts_in_its_digest():
    rows = {name: np.zeros((2, *field.axes), field.wire_dtype) for name, field in FIELDS.items()}
    assert digests(rows)[0] == digests(rows)[1]
    for name in FIELDS:
        other = {key: column.copy() for key, column in rows.items()}
        other[name].reshape(2, -1)[1, -1] = 1
        assert digests(other)[0] == digests(rows)[0] != digests(other)[1]


def test_summary_and_picture(tmp_path):
    with UdpModel(SMALL) as model:
        summary = launch(FEW, [model.address(0), model.address(1)], tmp_path)
    assert summary["transitions"] == 96 and summary["rows_compared"] == 48 and summary["reduction_factor"] >= 30
    assert (tmp_path / "frames.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "summary.json").exists()


def test_an_exception_of_the_check_ends_the_training(tmp_path):
    def check():
        raise LaunchError("the switch has ended")

    with UdpModel(SMALL) as model, pytest.raises(LaunchError, match="has ended"):
        launch(FEW, [model.address(0)], tmp_path, check=check)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"transitions": 95}, "multiple of add_size, 16"),
        ({"batches": 7}, "batches must be at (most 6|least 1)"),
        ({"batches": 0}, "batches must be at (most 6|least 1)"),
    ],
)
def test_options_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        replace(FEW, **change)

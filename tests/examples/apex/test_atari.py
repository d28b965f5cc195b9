"""Atari transitions through a client and the golden switch, in virtual time: what is drawn is what was pushed, in few
bytes."""

from dataclasses import replace

import numpy as np
import pytest

from examples.apex.atari import NAIVE_BYTES, SPEC, AtariOptions, digests, play
from examples.apex.atari_launch import launch_atari
from examples.common.processes import LaunchError
from iswitch.config import Config, Replay
from iswitch.replay import ReplayClient
from sim.bench.replay_network import Network
from sim.bench.udp_model import UdpModel

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = AtariOptions(transitions=96, add_items=16, batches=3, batch=16)
SMALL = Config(ports=4, members=4, replay=Replay(capacity=32, sessions=4, log_bytes=1 << 20))


def clients(**faults):
    network = Network(SMALL, **faults)
    return [ReplayClient(network.transport(), SPEC) for _ in range(2)]


def test_a_naive_transition_is_what_the_paper_pushes():
    assert NAIVE_BYTES == 225_792


@pytest.mark.parametrize("faults", [{}, {"loss": 0.05, "late": 0.1}], ids=str)
def test_frames_are_pushed_once_and_drawn_as_they_were(faults):
    actor, learner = clients(**faults)
    seen = []
    with actor, learner:
        progress = play(actor, learner, FEW, lambda point, batch: seen.append(batch))
        table = actor.statistics()
    assert progress.added == table.adds == 96 and table.size == 32 and progress.drawn == 3 * 16 and progress.gone == 0
    assert table.frames_written + table.frames_shared == 96 * 2 * 4 and table.frames_written <= 96 + FEW.horizon + 3
    assert NAIVE_BYTES / progress.bytes_each >= 30
    drawn = [batch for batch in seen if batch]
    assert len(seen) == 6 and len(drawn) == 3 and all(batch["observation"].shape == (16, 4, 84, 84) for batch in drawn)


def test_other_bytes_than_those_pushed_are_noticed():
    actor, learner = clients()

    class Wrong:
        def sample(self, *args, **given):
            batch = learner.sample(*args, **given)
            batch.data["next_observation"][3, 2, 40, 40] ^= 1
            return batch

    with actor, learner, pytest.raises(RuntimeError, match="was drawn with other bytes"):
        play(actor, Wrong(), FEW)


def test_every_field_of_a_row_counts_in_its_digest():
    rows = {name: np.zeros((2, *field.axes), field.wire_dtype) for name, field in SPEC.items()}
    assert digests(rows)[0] == digests(rows)[1]
    for name in SPEC:
        other = {key: column.copy() for key, column in rows.items()}
        other[name].reshape(2, -1)[1, -1] = 1
        assert digests(other)[0] == digests(rows)[0] != digests(other)[1]


def test_summary_and_picture(tmp_path):
    with UdpModel(SMALL) as model:
        summary = launch_atari(FEW, [model.address(0), model.address(1)], tmp_path)
    assert summary["transitions"] == 96 and summary["rows_compared"] == 48 and summary["times_fewer"] >= 30
    assert (tmp_path / "frames.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "summary.json").exists()


def test_an_error_of_the_watch_ends_it(tmp_path):
    def watch():
        raise LaunchError("the switch is gone")

    with UdpModel(SMALL) as model, pytest.raises(LaunchError, match="is gone"):
        launch_atari(FEW, [model.address(0)], tmp_path, watch=watch)


@pytest.mark.parametrize(
    "change,why",
    [
        ({"transitions": 95}, "multiple of add_items, 16"),
        ({"batches": 7}, "batches must be 1 to 6"),
        ({"batches": 0}, "batches must be 1 to 6"),
    ],
)
def test_options_that_make_no_sense_are_refused(change, why):
    with pytest.raises(ValueError, match=why):
        replace(FEW, **change)

"""Sizes, counters and jobs, read from the golden switch over a socket."""

from dataclasses import fields

import numpy as np
import pytest

from iswitch import IswitchError, Worker
from iswitch.config import Config, Replay
from iswitch.control.registers import RegisterReader
from iswitch.control.switch_info import SwitchInfo
from iswitch.wire import JobState, Outcome, PortCounter, Stat
from iswitch.wire.replay import ReplayOutcome
from sim.bench.udp_model import UdpModel

CONFIG = Config(ports=2, members=4, window=4, elements=64, replay=Replay(capacity=64, log_bytes=4096))


@pytest.fixture(scope="module")
def model():
    with UdpModel(CONFIG) as made:
        yield made


def test_the_sizes_are_those_the_switch_was_built_with(control):
    assert control.switch_info() == SwitchInfo(
        **{field.name: getattr(CONFIG, field.name) for field in fields(SwitchInfo)}
    )


def test_every_switch_that_can_be_built_can_be_joined():
    """The driver knows neither `queue_bytes` nor other build parameters, on which the limits of the sizes depend."""
    large = Config(elements=2216, queue_bytes=32768)
    with UdpModel(large) as model, Worker(model.address(), world=1) as worker:
        assert worker.elements == 2216 and worker.switch_info.uplink_elements == large.uplink_elements
        array = np.arange(3000, dtype=np.float32)
        worker.allreduce(array)
        assert np.array_equal(array, np.arange(3000))


def test_counters_have_the_names_of_the_wire(control):
    names = [*Outcome.__members__, *Stat.__members__]
    names += [f"port{port}.{name}" for port in range(2) for name in PortCounter.__members__]
    names += [f"replay.{name}" for name in ReplayOutcome.__members__]
    assert list(control.counters()) == names == list(control.counters(CONFIG.ports))


def test_a_job_is_reported_while_it_exists(model, control):
    assert control.job(1) == (1, JobState.NONE, control.job(1).epoch, 0, 0, 0)
    with Worker(model.address(), world=1, job=1):
        job = control.job(1)
        assert (job.state, job.world, job.live, job.threshold) == (JobState.RUNNING, 1, 1, 1)


def test_another_device_is_an_error(control, monkeypatch):
    monkeypatch.setattr(RegisterReader, "registers", lambda self, first, count: [0] * count)
    with pytest.raises(IswitchError, match="answers as 0x00000000, version 0, but an iswitch of version 2 answers as"):
        control.switch_info()

"""The client against the golden switch, in virtual time, over a network that loses, doubles and overtakes."""

import numpy as np
import pytest
from iswitch.config import Config, Replay
from iswitch.replay import Field, ReplayClient

from sim.bench.replay_network import Network

REPLAY = Replay(tables=2, capacity=64, priority_bits=27, sessions=4, kept=4, draws=512, record_bytes=64, log_bytes=1 << 16)
SPEC = {"observation": Field((4,), np.float32), "action": Field((), np.int64), "reward": Field((), np.float32),
        "next_observation": Field((4,), np.float32), "discount": Field((), np.float32)}
WORSE = [{}, {"doubled": 1.0}, {"loss": 0.05, "late": 0.2}, {"loss": 0.3, "doubled": 0.3, "late": 0.3}]


def config(**changes) -> Config:
    return Config(ports=4, members=4, replay=Replay(**{**{name: getattr(REPLAY, name) for name in REPLAY.__dataclass_fields__}, **changes}))


def transitions(spec, count, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 100, (count, *field.shape)).astype(field.dtype) for name, field in spec.items()}


@pytest.mark.parametrize("faults", WORSE, ids=str)
def test_what_is_drawn_is_what_was_added(faults):
    network = Network(config(), **faults)
    with ReplayClient(network.transport(), SPEC) as client:
        data = transitions(SPEC, 50)
        added = client.extend(data, np.arange(1, 51) / 10)
        assert np.array_equal(added.items, np.arange(64, 114))
        batch = client.sample(512)
        assert not batch.gone.any() and batch.filled == 50 and len(batch) == 512
        for name in SPEC:
            assert np.array_equal(batch.data[name], data[name][batch.items - 64]) and batch.data[name].dtype == data[name].dtype
        assert np.allclose(batch.priorities, (batch.items - 63) / 10, atol=1e-6)
        assert tuple(client.update_priority(batch.items, np.ones(512))) == (512, 0)
        done, stale = client.update_priority([1, 64], [1, 2])
        assert (done, stale) == (1, 1)
    assert network.switch.service.tables[0].draws == 512 and network.switch.service.tables[0].adds == 50

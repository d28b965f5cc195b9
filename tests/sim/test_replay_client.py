"""The client through the compiled switch, each frame of which is compared with the golden one, over networks that lose,
double and overtake."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.replay import Field, ReplayClient
from sim.bench.cosimulation import Pair
from sim.bench.replay_network import Network
from sim.bench.replay_traffic import NARROW

SPEC = {"observation": Field((4,), np.float32), "action": Field((), np.int64)}
STACKED = {"observation": Field((4, 9, 9), np.uint8, stacked=4), "action": Field((), np.int64)}
NETWORKS = {
    "perfect": {},
    "everything twice, and late": {"doubled": 1.0, "late": 0.5},
    "losses": {"loss": 0.1, "doubled": 0.2, "late": 0.2},
}


class Compiled(Network):
    """With a compiled switch beside the golden one."""

    def __init__(self, config: Config, **faults: float) -> None:
        super().__init__(config, **faults)
        self.pair = Pair(config, seed=1)
        self.switch = self.pair


@pytest.mark.parametrize("faults", NETWORKS.values(), ids=NETWORKS)
def test_the_tree_is_as_if_each_request_had_come_once(faults):
    network, rng = Compiled(NARROW, **faults), np.random.default_rng(1)
    capacity = NARROW.replay.capacity
    stale = 0
    with ReplayClient(network.transport(), SPEC, table=1, scale=1024.0) as client:
        priorities, content = {}, {}
        for _ in range(8):
            observations = rng.normal(size=(30, 4)).astype(np.float32)
            added = client.extend(
                {"observation": observations, "action": np.arange(30)}, given := rng.integers(0, 50, 30)
            )
            for item, observation, priority in zip(added.items.tolist(), observations, given.tolist()):
                priorities[item], content[item] = priority * 1024, observation
            first = max(priorities) - capacity + 1
            batch = client.sample(40)
            assert all(
                item >= first and priorities[item] == round(priority * 1024)
                for item, priority in zip(batch.items.tolist(), batch.priorities)
            )
            assert np.array_equal(batch.data["observation"], [content[item] for item in batch.items.tolist()])
            chosen = [*batch.items.tolist(), max(first - 1, capacity)]
            done, gone = client.update_priority(chosen, new := rng.integers(0, 50, len(chosen)))
            assert gone == sum(item < first for item in chosen) and done == len(chosen) - gone
            stale += gone
            priorities |= {item: priority * 1024 for item, priority in zip(chosen, new.tolist()) if item >= first}
        client.flush()
    table = network.pair.model.service.tables[1]  # which the compiled switch agrees with, by every frame and counter
    assert [table.row(item % capacity) for item in sorted(priorities)[-capacity:]] == sorted(priorities.items())[
        -capacity:
    ]
    assert table.total == sum(priority for _, priority in sorted(priorities.items())[-capacity:]) and stale
    network.pair.counters_agree()
    network.pair.close()


@pytest.mark.parametrize("faults", NETWORKS.values(), ids=NETWORKS)
def test_stacks_and_parameters_come_back_whole(faults):
    network, rng = Compiled(NARROW, **faults), np.random.default_rng(2)
    frames = rng.integers(0, 256, (14, 9, 9)).astype(np.uint8)
    stacks = np.stack([frames[k : k + 4] for k in range(10)])
    with ReplayClient(network.transport(), STACKED) as actor, ReplayClient(network.transport(), STACKED) as learner:
        actor.extend({"observation": stacks, "action": np.arange(10)}, np.ones(10))
        actor.flush()
        batch = learner.sample(32)
        assert np.array_equal(batch.data["observation"], stacks[batch.data["action"]]) and not batch.overwritten.any()
        assert actor.statistics().frames_written == 13
        learner.set_parameters(1, parameters := rng.bytes(1500))
        assert actor.get_parameters(timeout_s=5) == (1, parameters)
    network.pair.counters_agree()
    network.pair.close()

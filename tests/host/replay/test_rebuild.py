"""A client whose table has a bit error learns it at once, and rebuilds the table while others use it."""

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.golden.replay.rebuild import SumState
from iswitch.replay import CorruptTableError, Field, ReplayClient
from iswitch.wire.replay import REBUILD_SLOTS
from sim.bench.replay_network import Network

CAPACITY = 4 * REBUILD_SLOTS
SPEC = {"number": Field((), np.int64)}


def network(**faults):
    return Network(Config(ports=2, replay=Replay(tables=1, capacity=CAPACITY, sessions=3, log_bytes=4096)), **faults)


def add(client, count, first=0):
    client.extend({"number": np.arange(first, first + count)}, np.ones(count))
    client.flush()


def corrupt(net, *damaged):
    table = net.switch.service.tables[0]
    table.sums = table.sums._replace(corrupt=True)
    table.damaged |= set(damaged)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_corrupt_table_raises_until_it_is_rebuilt_while_others_add(loss, tmp_path):
    net = network(loss=loss)
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        add(learner, 100)
        items = learner.sample(10, seed=1).items
        corrupt(net, 7)
        message = r"table 0 at the switch is corrupt: .* `iswitch rebuild-replay --table 0 --switch the switch`"
        for call in (
            lambda: learner.sample(10),
            lambda: next(learner.prefetch(10)),
            lambda: learner.save(tmp_path / "a"),
        ):
            with pytest.raises(CorruptTableError, match=message):
                call()
        added = [0]

        def act():
            actor.extend({"number": np.arange(2)}, np.ones(2))
            added[0] += 2

        net.every(0.00002, act)
        assert learner.rebuild() == 1
        table = net.switch.service.tables[0]
        assert table.is_intact and added[0] > 0 and table.slots.tree.priorities[7] == 0
        batch = learner.sample(500, seed=2)
        assert CAPACITY + 7 not in batch.items.tolist()
        assert tuple(learner.update_priority([CAPACITY + 7], [3])) == (1, 0) and len(items) == 10
        assert CAPACITY + 7 in learner.sample(500, seed=3).items.tolist()


def test_two_clients_that_rebuild_at_once_both_succeed():
    net = network()
    with ReplayClient(net.transport(), SPEC) as one, ReplayClient(net.transport(), SPEC) as other:
        add(one, 100)
        corrupt(net)
        done = []
        net.at(net.now + 0.00005, lambda: done.append(other.rebuild()))
        one.rebuild()
        if not done:
            other.rebuild()
        assert net.switch.service.tables[0].is_intact and len(one.sample(10).items) == 10


def test_a_table_in_which_errors_occur_again_and_again_is_given_up(monkeypatch):
    net = network()
    table = net.switch.service.tables[0]
    rebuild = table.rebuild

    def and_fail(slot, count):
        outcome = rebuild(slot, count)
        table.sums = SumState(table.sums.restored, corrupt=True)
        return outcome

    monkeypatch.setattr(table, "rebuild", and_fail)
    with (
        ReplayClient(net.transport(), SPEC) as client,
        pytest.raises(
            CorruptTableError, match=r"is still corrupt after 4 attempts to rebuild it: .* replace the board"
        ),
    ):
        client.rebuild()

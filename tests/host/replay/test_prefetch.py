"""Batches that are sampled before the program needs them."""

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.errors import ClosedError
from iswitch.replay import Field, NotServedError, ReplayClient, SessionLostError
from sim.bench.replay_network import Network

SPEC = {"x": Field((3,), np.float32), "k": Field((), np.int32)}
REPLAY = Replay(capacity=64, sessions=3, log_bytes=1 << 14)
FAULTS = [{}, {"doubled": 1.0}, {"loss": 0.2, "late": 0.3}]


def network(**faults):
    return Network(Config(ports=4, members=4, replay=REPLAY), **faults)


def filled(client, count=64):
    client.extend({"x": np.zeros((count, 3)), "k": np.arange(count)}, np.arange(1, count + 1)).items.tolist()


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_prefetched_batches_come_in_order_with_their_seeds(depth, faults):
    with ReplayClient(network(**faults).transport(), SPEC) as client:
        filled(client)
        expected = [client.sample(100, seed=7 + k).items.tolist() for k in range(6)]
        prefetch = client.prefetch(100, depth=depth, seed=7)
        batches = [next(prefetch) for _ in range(6)]
        assert [batch.items.tolist() for batch in batches] == expected and [batch.seed for batch in batches] == list(
            range(7, 13)
        )
        assert all(np.array_equal(batch.data["k"], batch.items - 64) for batch in batches)


def test_a_prefetched_batch_is_returned_at_once():
    net = network()
    with ReplayClient(net.transport(), SPEC) as client:
        filled(client)
        prefetch = client.prefetch(32, depth=2)
        while not prefetch.ready:
            net.run(net.now + 0.001)
            client.poll()
        before = net.now
        next(prefetch)
        assert net.now == before


def test_the_loop_of_a_learner():
    net = network(loss=0.05)
    with ReplayClient(net.transport(), SPEC) as client:
        filled(client)
        for step, batch in enumerate(client.prefetch(32, depth=3, beta=lambda: 0.5)):
            client.update_priority(batch.items, np.full(32, 2.0))
            if step == 20:
                break
        client.flush()
        table = net.switch.service.tables[0]
        assert 21 * 32 <= table.samples <= 24 * 32


def test_a_prefetching_client_can_add_the_items_it_waits_for():
    """The waiting samples let the adds pass."""
    net = network(loss=0.1)
    with ReplayClient(net.transport(), SPEC) as client:
        prefetch = client.prefetch(8, depth=2, min_adds=30)
        for _ in range(4):
            filled(client, 8)
        assert len(next(prefetch)) == 8
        assert net.switch.service.tables[0].adds == 32


def test_adds_do_not_wait_for_prefetched_batches():
    net = network()
    with ReplayClient(net.transport(), SPEC) as client:
        prefetch = client.prefetch(8, min_adds=3)
        net.every(0.001, lambda: client.closed or client.poll())
        for k in range(3):
            client.add(priority=1.0, x=np.zeros(3), k=k)
            net.run(net.now + 0.01)
        assert net.switch.service.tables[0].adds == 3 and len(next(prefetch)) == 8


def test_prefetching_ends_when_the_session_is_lost():
    net = network()
    client = ReplayClient(net.transport(), SPEC)
    filled(client)
    prefetch = client.prefetch(8, depth=3)
    updated = client.update_priority([64], [1.0])
    net.switch.service.sessions[:] = [net.switch.service.sessions[0]._replace(open=False)] * 3
    with pytest.raises(SessionLostError, match="reopen"):
        list(prefetch)
    client.reopen()
    assert list(prefetch) == [] and len(client.sample(8)) == 8
    with pytest.raises(SessionLostError, match="UPDATE to table 0 at the switch was in flight"):
        tuple(updated)
    client.close()
    with pytest.raises(ClosedError, match="make a new ReplayClient"):
        client.sample(8)


def test_a_batch_that_never_comes_is_an_error_and_the_next_can_be_requested():
    net = network()
    with ReplayClient(net.transport(), SPEC, wait_s=2) as client:
        prefetch = client.prefetch(8)
        net.run(net.now + 30)  # nobody waits for it yet
        client.poll()
        before = net.now
        with pytest.raises(NotServedError, match="all priorities are 0"):
            next(prefetch)
        assert 1.9 < net.now - before < 2.5
        filled(client)
        assert len(next(prefetch)) == 8


def test_a_closed_prefetch_leaves_no_requests():
    net = network()
    with ReplayClient(net.transport(), SPEC) as client:
        filled(client)
        prefetch = client.prefetch(300, depth=4)
        next(prefetch)
        prefetch.close()
        assert list(prefetch) == []
        client.flush()
        assert len(client.sample(8)) == 8


def test_a_client_that_waits_for_a_batch_can_be_closed():
    net = network()
    with ReplayClient(net.transport(), SPEC) as client:
        client.prefetch(8, depth=2)
    assert not any(place.open for place in net.switch.service.sessions)

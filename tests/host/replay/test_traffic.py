"""Several clients at once, at random, over a bad network: each sampled transition is the one that its handle names."""

import random

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, ReplayClient
from sim.bench.replay_network import Network

SPEC = {"stack": Field((3, 8, 8), np.uint8, stacked=3), "long": Field((30,), np.float32), "number": Field((), np.int64)}
REPLAY = Replay(capacity=64, sessions=4, cached_answers=4, samples_per_request=256, log_bytes=1 << 15)


def transition(number):
    """The number of a transition determines its content. Neighbours share frames."""
    frames = np.arange(number, number + 3, dtype=np.int64)
    stack = np.broadcast_to((frames % 251).astype(np.uint8)[:, None, None], (3, 8, 8))
    return {"stack": stack, "long": np.full(30, number, np.float32), "number": number}


def extended(client, numbers):
    made = [transition(number) for number in numbers]
    return client.extend(
        {name: np.stack([np.asarray(each[name]) for each in made]) for name in SPEC}, np.ones(len(made))
    )


@pytest.mark.parametrize("seed", range(4))
def test_transitions_of_several_clients_are_never_mixed_up(seed):
    chance = random.Random(seed)
    net = Network(
        Config(ports=4, members=4, replay=REPLAY), seed=seed, loss=0.1 * (seed % 3), doubled=0.1, late=0.2 * (seed % 2)
    )
    clients = [ReplayClient(net.transport(), SPEC) for _ in range(3)]
    given, added, told = {}, [], 0
    extended(clients[0], range(-9, 0)).items.tolist()
    prefetch = clients[2].prefetch(64, depth=3)
    batches = []
    for _ in range(120):
        client = chance.choice(clients)
        kind = chance.random()
        if kind < 0.5:
            numbers = [told % 10**6 + k for k in range(chance.randint(1, 30))]
            told += len(numbers)
            added.append((extended(client, numbers), numbers))
        elif kind < 0.6:
            added.append((client.add(priority=2.0, **transition(told)), [told]))
            told += 1
        elif kind < 0.75:
            batches.append(client.sample(chance.randint(1, 256)))
        elif kind < 0.9:
            batches.append(next(prefetch))
        elif batches:
            done, stale = clients[2].update_priority(
                batches[-1].items, np.full(len(batches[-1]), chance.uniform(0.1, 9.0))
            )
            assert done + stale == len(batches[-1])
        for each in clients:
            each.poll()
    for handed, numbers in added:
        given |= dict(zip(handed.items.tolist(), numbers))
    assert len(given) == told and set(given) == set(range(73, 73 + told))
    given |= {64 + k: k - 9 for k in range(9)}
    drawn = 0
    for batch in batches:
        for k in np.flatnonzero(~batch.overwritten):
            expected = transition(given[int(batch.items[k])])
            drawn += 1
            assert all(np.array_equal(batch.data[name][k], expected[name]) for name in SPEC)
    assert drawn > 500 and net.switch.service.tables[0].adds == told + 9
    prefetch.close()
    for client in clients:
        client.close()

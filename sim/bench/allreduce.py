"""Time of the driver's sums over worker processes, with the emulated board as a process of its own."""

import json
import multiprocessing
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iswitch import Worker

__all__ = ["Allreduce", "allreduce", "emulator"]

WORLD = 4
START_SECONDS = 600
"""Seconds for the first start, which compiles the switch."""
STOP_SECONDS = 60


class Allreduce(NamedTuple):
    """Times of one size. `median_us`: of all repetitions, each from the first worker's start to the last one's end.
    `rtl_share`: of the time in which the emulator was busy, the part spent in the compiled switch."""

    median_us: float
    rtl_share: float


def allreduce(size_bytes: int, *, repetitions: int) -> Allreduce:
    """Measure float32 sums of `size_bytes` over WORLD processes; the first sum warms up and does not count."""
    summary: dict[str, Any] = {}
    with emulator(summary) as ports, multiprocessing.get_context("spawn").Pool(WORLD) as pool:
        calls = [(rank, port, size_bytes // 4, repetitions) for rank, port in enumerate(ports)]
        spans = np.array(pool.starmap(work, calls, chunksize=1))  # (worker, repetition, begin and end)
    times = spans[:, :, 1].max(axis=0) - spans[:, :, 0].min(axis=0)
    return Allreduce(statistics.median(1e6 * times), summary["rtl_share"])


def work(rank: int, port: int, size: int, repetitions: int) -> list[tuple[float, float]]:
    """Run one worker. The monotonic clock is the same for all processes."""
    gradient = np.random.default_rng(rank).normal(size=size).astype("<f4")
    spans = []
    with Worker(f"127.0.0.1:{port}", world=WORLD, rank=rank) as worker:
        for _ in range(1 + repetitions):
            array = gradient.copy()
            worker.barrier()
            begun = time.monotonic()
            reduction = worker.allreduce(array)
            spans.append((begun, time.monotonic()))
            if not reduction.complete:
                raise RuntimeError(f"ranks {reduction.missing} are not in the sum")
    return spans[1:]


@contextmanager
def emulator(
    summary: dict[str, Any], *options: str, program: Sequence[str] = ("-m", "sim.emulator")
) -> Iterator[list[int]]:
    """Run `python -m sim.emulator` with these options, or another `program` with such options; yields the UDP port of
    each of its ports, and at the end its summary."""
    with tempfile.TemporaryDirectory() as folder:
        ready, written = Path(folder) / "ready.json", Path(folder) / "summary.json"
        process = subprocess.Popen(
            [
                sys.executable,
                *program,
                "--ports",
                str(WORLD),
                "--udp-base",
                "0",
                "--ready-file",
                str(ready),
                "--summary",
                str(written),
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    raise RuntimeError(f"the switch does not start: {process.communicate()[1][-2000:]}")
                time.sleep(0.05)
            yield [port for _, port in json.loads(ready.read_text())["ports"]]
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=STOP_SECONDS)
        summary.update(json.loads(written.read_text()))

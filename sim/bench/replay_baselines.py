"""The replay's sampler beside what people use now: items per second of software, cycles of hardware, and the clock at
which both do the same.

Software is measured on this machine, by turns, so that all see its better and its worse moments alike; hardware is
counted in cycles of the compiled RTL, which say nothing of the clock that a device reaches. Software hands out records
too, hardware what has been drawn. What cannot be measured is told, with the reason.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np

from sim.bench.replay_buffers import BUFFERS, Buffer
from sim.bench.replay_native import NativeBuffer
from sim.bench.replay_redis import TRANSITIONS, Exchange, RedisBuffer, exchange, server
from sim.bench.replay_sampler import Cycles, sampler_cycles

__all__ = ["BATCHES", "CAPACITIES", "OPERATIONS", "Baselines", "Needed", "Rates", "baselines", "needed", "rates"]

CAPACITIES = (1 << 14, 1 << 17, 1 << 20)
BATCHES = (32, 256, 512)
OPERATIONS = ("sample", "update", "step", "add")
RECORD_BYTES = TRANSITIONS["cartpole"].record_bytes
FILL = 1 << 14
PLACES = 128
"""Batches of indices that take turns to be updated."""
MISSING = (ImportError, OSError, RuntimeError)
"""What a system that is not there raises."""


class Effort(NamedTuple):
    """How long one operation on one batch is repeated, and how often it has its turn."""

    turn_s: float
    turns: int


EFFORT = {True: Effort(0.002, 3), False: Effort(0.02, 7)}


class Rates(NamedTuple):
    """Items per second, medians. step: a sample, then an update of all that was drawn. add: `batch` of them in one
    call. best: the four in the best turn of each, which a busy machine lowers least."""

    system: str
    capacity: int
    batch: int
    sample: float
    update: float
    step: float
    add: float
    best: tuple[float, ...]


class Needed(NamedTuple):
    """Hz at which the sampler does as many items per second as the fastest software in its best turn, and which that
    is; Redis left out, for a learner behind it samples with numpy."""

    capacity: int
    batch: int
    operation: str
    hertz: float
    fastest: str


class Baselines(NamedTuple):
    """missing: systems that could not be measured, and why."""

    rates: list[Rates]
    missing: dict[str, str]
    cycles: list[Cycles]
    needed: list[Needed]
    exchanges: dict[str, Exchange]


def baselines(quick: bool) -> Baselines:
    """All of it: some 20 seconds if `quick`, else a minute, and once the time to compile three samplers."""
    exchanges: dict[str, Exchange] = {}
    with ExitStack() as stack:
        systems: dict[str, Callable[[int, int], Buffer]] = BUFFERS | {"native": NativeBuffer}
        missing = {}
        try:
            port = stack.enter_context(server())
            systems["redis"] = partial(RedisBuffer, port=port)
            exchanges = {name: exchange(port, transition, quick) for name, transition in TRANSITIONS.items()}
        except MISSING as error:
            missing["redis"] = reason(error)
        found, lacking = rates(systems, CAPACITIES, BATCHES, EFFORT[quick])
    cycles = [row for capacity in CAPACITIES for row in sampler_cycles(capacity, BATCHES)]
    return Baselines(found, missing | lacking, cycles, needed(cycles, found), exchanges)


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def rates(
    systems: Mapping[str, Callable[[int, int], Buffer]],
    capacities: Sequence[int],
    batches: Sequence[int],
    effort: Effort,
) -> tuple[list[Rates], dict[str, str]]:
    """One row for each system, capacity and batch; and systems that do not load, with the reason."""
    rows: list[Rates] = []
    missing: dict[str, str] = {}
    for capacity in capacities:
        buffers = {}
        for name, system in systems.items():
            if name not in missing:
                try:
                    buffers[name] = filled(system(capacity, RECORD_BYTES), capacity)
                except MISSING as error:
                    missing[name] = reason(error)
        for batch in batches:
            seconds: dict[tuple[str, str], list[float]] = {}
            for turn in range(1 + effort.turns):
                for name, buffer in buffers.items():
                    for operation, call in calls(buffer, capacity, batch, turn).items():
                        seconds.setdefault((name, operation), []).append(repeated(call, effort.turn_s))
            for name in buffers:
                # The first turn warms up.
                turns = [seconds[name, operation][1:] for operation in OPERATIONS]
                sample, update, step, add = (batch / statistics.median(taken) for taken in turns)
                rows.append(
                    Rates(
                        name, capacity, batch, sample, update, step, add, tuple(batch / min(taken) for taken in turns)
                    )
                )
    return rows, missing


def filled(buffer: Buffer, capacity: int) -> Buffer:
    rng = np.random.default_rng(1)
    for begin in range(0, capacity, FILL):
        count = min(FILL, capacity - begin)
        buffer.add(rng.integers(0, 256, (count, RECORD_BYTES), np.uint8), some(rng, count))
    return buffer


def some(rng: np.random.Generator, count: int) -> np.ndarray:
    """Priorities of which none is 0."""
    return 0.01 + rng.random(count)


def calls(buffer: Buffer, capacity: int, batch: int, seed: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(seed)
    records, priorities = rng.integers(0, 256, (batch, RECORD_BYTES), np.uint8), some(rng, batch)
    # Not always the same ones, which would stay in the processor's cache.
    anywhere = itertools.cycle(rng.integers(0, capacity, (PLACES, batch)))
    return {
        "sample": lambda: buffer.sample(batch),
        "update": lambda: buffer.update(next(anywhere), priorities),
        "step": lambda: buffer.update(buffer.sample(batch), priorities),
        "add": lambda: buffer.add(records, priorities),
    }


def repeated(call: Callable[[], object], seconds: float) -> float:
    """Seconds a call, of as many as end within `seconds` or one."""
    begun, count = time.perf_counter(), 0
    while True:
        call()
        count += 1
        if (passed := time.perf_counter() - begun) >= seconds:
            return passed / count


def needed(cycles: Iterable[Cycles], found: Sequence[Rates]) -> list[Needed]:
    """Empty where there is nothing to compare with."""
    rows = []
    for row in cycles:
        others = [other for other in found if other[1:3] == row[:2] and other.system != "redis"]
        for k, operation in enumerate(OPERATIONS if others else ()):
            fastest = max(others, key=lambda other: other.best[k])
            rows.append(
                Needed(
                    row.capacity,
                    row.batch,
                    operation,
                    fastest.best[k] * getattr(row, operation) / row.batch,
                    fastest.system,
                )
            )
    return rows

"""Compare the sampler with software for prioritized replay: items per second of software, cycles of the hardware, and
the clock frequency at which both are equally fast.

Software is measured on this machine. The systems take turns, so a busy period slows all of them. Hardware is counted in
cycles of the compiled RTL, which say nothing about the clock that a device reaches. Software also copies records;
hardware returns handles. A system that cannot be measured is reported with the reason.
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

__all__ = [
    "BATCHES",
    "CAPACITIES",
    "OPERATIONS",
    "Baselines",
    "Effort",
    "Needed",
    "Rates",
    "baselines",
    "needed",
    "rates",
]

CAPACITIES = (1 << 14, 1 << 17, 1 << 20)
BATCHES = (32, 256, 512)
OPERATIONS = ("sample", "update", "step", "add")
RECORD_BYTES = TRANSITIONS["cartpole"].record_bytes
FILL = 1 << 14
PLACES = 128
"""Batches of indices that updates use in turn."""
MISSING = (ImportError, OSError, RuntimeError)
"""Exceptions of a system that is not installed."""


class Effort(NamedTuple):
    """Seconds for which one operation on one batch is repeated in a turn, and the number of turns."""

    turn_s: float
    turns: int


EFFORT = {True: Effort(0.002, 3), False: Effort(0.02, 7)}


class Rates(NamedTuple):
    """Items per second, medians over the turns. `step` is a sample and an update of all sampled items; `add` adds
    `batch` items in one call. `best` holds the four figures of the best turn, which a busy machine lowers least."""

    system: str
    capacity: int
    batch: int
    sample: float
    update: float
    step: float
    add: float
    best: tuple[float, ...]


class Needed(NamedTuple):
    """The clock frequency in hertz at which the sampler is as fast as the fastest software in its best turn. Redis is
    left out: a learner behind it samples with numpy."""

    capacity: int
    batch: int
    operation: str
    hertz: float
    fastest: str


class Baselines(NamedTuple):
    """All results. `missing` names the systems that could not be measured, and the reason."""

    rates: list[Rates]
    missing: dict[str, str]
    cycles: list[Cycles]
    needed: list[Needed]
    exchanges: dict[str, Exchange]


def baselines(quick: bool) -> Baselines:
    """Measure everything: about 20 seconds if `quick`, else a minute, and once the time to compile three samplers."""
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
    """Return one row for each system, capacity and batch, and the systems that do not load with the reason."""
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

"""`python -m sim.bench.replay_client_work`: what the replay client itself takes for a push, a batch and an update.

Processor time of the client's thread outside of its transport, with its part in C and in Python alone, in turns beside
recorded answers (`sim.bench.replay_playback`). The workloads are those of `sim.bench.replay_switch`, at its smallest
scale.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch.config import Config
from iswitch.estimate.costs import Costs
from iswitch.replay import ReplayClient, channel, query_group, request_ring
from iswitch.replay.compiled import compiled_library
from sim.bench.replay_costs import WORKLOADS
from sim.bench.replay_playback import Recorder, Recording, playing
from sim.bench.replay_redis import SAMPLE
from sim.bench.replay_switch import BUILD, SCALES, ClientCosts, Metered, data_of, machine, run_programs
from sim.cluster.realtime import before_others
from sim.emulator.program import Program

__all__ = ["ClientWork", "OwnWork", "measure"]

REPETITIONS = {"vectors": 40, "frames": 5, "stacks": 5}
"""Pushes, batches and updates that are measured; the first ones do not count."""


class OwnWork(NamedTuple):
    """Processor time of the client outside of its transport for an operation, in microseconds, and the datagrams that
    it sends and receives."""

    spent_us: float
    datagrams: int


class ClientWork(NamedTuple):
    """The client's own work for a push, a batch, and an update of its priorities."""

    push: OwnWork
    sample: OwnWork
    update: OwnWork


def operations(transport: Any, name: str, repetitions: int) -> ClientWork:
    """Push, sample and update over a `Metered` transport; return the medians, without the first ones."""
    spec, data, priorities = data_of(WORKLOADS[name], SCALES[name][-1])
    batch = SAMPLE // SCALES[name][-1]
    found: dict[str, list[OwnWork]] = {operation: [] for operation in ClientWork._fields}
    with ReplayClient(transport, spec) as client:

        def took() -> OwnWork:
            _, datagrams, spent_s = transport.take()
            return OwnWork(1e6 * spent_s, datagrams)

        for _ in range(repetitions):
            took()
            client.extend(data, priorities)
            client.flush()
            found["push"].append(took())
            items = client.sample(batch).items
            found["sample"].append(took())
            client.update_priority(items, np.ones(batch))
            client.flush()
            found["update"].append(took())
    return ClientWork(*(_median(works[1:]) for works in found.values()))


def _median(works: Sequence[OwnWork]) -> OwnWork:
    return OwnWork(statistics.median(one.spent_us for one in works), works[-1].datagrams)


def record(name: str, repetitions: int, config: Config = BUILD) -> Recording:
    """Record what a client receives from the compiled switch."""
    recordings = []

    def work(program: Program) -> None:
        recorder = Recorder(program.transport())
        operations(Metered(recorder), name, repetitions)
        recordings.append(recorder.recording)

    run_programs(config, [work], [machine("sockets", ClientCosts(0, 0, 0), Costs())])
    return recordings[0]


@contextmanager
def used_library(library: Any) -> Iterator[None]:
    """Let clients use a compiled library, or none."""
    modules, usual = (channel, query_group, request_ring), compiled_library
    try:
        for module in modules:
            module.compiled_library = lambda: library  # type: ignore[attr-defined]
        yield
    finally:
        for module in modules:
            module.compiled_library = usual  # type: ignore[attr-defined]


def measure(
    name: str, *, turns: int, realtime: bool, repetitions: int, config: Config = BUILD
) -> tuple[ClientWork, ClientWork]:
    """Return the client's own work for a workload with its part in C, and in Python alone: medians of turns."""
    recording = record(name, repetitions, config)
    found: tuple[list[ClientWork], list[ClientWork]] = ([], [])
    for _ in range(turns):
        for library, into in zip((compiled_library(), None), found, strict=True):
            with playing(recording, realtime=realtime) as connect, used_library(library), before_others(realtime):
                into.append(operations(Metered(connect()), name, repetitions))
    compiled, alone = (ClientWork(*map(_median, zip(*works, strict=True))) for works in found)
    return compiled, alone


def main(
    turns: Annotated[int, typer.Option(min=1, help="Measurements of everything.")] = 5,
    realtime: Annotated[bool, typer.Option(help="Run before all other programs. Only root may.")] = True,
    only: Annotated[str, typer.Option(help="Only this workload.")] = "",
) -> None:
    """Print the client's own work."""
    if only and only not in WORKLOADS:
        raise typer.BadParameter(f"no workload is called {only!r}; there are {', '.join(WORKLOADS)}")
    table = Table("workload", "operation", "datagrams", "us with C", "us in Python alone", "ratio")
    for name in [only] if only else WORKLOADS:
        compiled, alone = measure(name, turns=turns, realtime=realtime, repetitions=REPETITIONS[name])
        for operation, one, other in zip(ClientWork._fields, compiled, alone, strict=True):
            ratio = f"{other.spent_us / one.spent_us:.1f}"
            table.add_row(
                name, operation, f"{one.datagrams:,}", f"{one.spent_us:,.0f}", f"{other.spent_us:,.0f}", ratio
            )
    Console(width=120, highlight=False).print(table)


if __name__ == "__main__":
    typer.run(main)

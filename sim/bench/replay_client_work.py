"""`python -m sim.bench.replay_client_work`: what the replay client itself takes for a push, a batch and an update.

Processor time of the client's thread outside of its transport, with its part in C and in Python alone, in turns beside
recorded answers (`sim.bench.replay_playback`). The sizes are those of `sim.bench.replay_program`, at its smallest
scale.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

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
from sim.bench.replay_program import BUILD, SCALES, Metered, data_of, machine, run_programs
from sim.bench.replay_redis import SAMPLE
from sim.cluster.realtime import before_others
from sim.emulator.program import Program

__all__ = ["REPETITIONS", "ClientWork", "OwnWork", "Spent", "fitted", "measure"]

T = TypeVar("T")

REPETITIONS = {"vectors": 40, "frames": 5, "stacks": 5}
"""Pushes, batches and updates that are measured; the first ones do not count."""


class OwnWork(NamedTuple):
    """Processor time of the client outside of its transport for an operation.

    Parameters
    ----------
    constant_us : float
        Microseconds however many datagrams there are.
    datagram_us : float
        Microseconds for each datagram that it sends or receives.
    datagrams : int
        The most datagrams of the measurement.
    """

    constant_us: float
    datagram_us: float
    datagrams: int

    @property
    def spent_us(self) -> float:
        """Microseconds with the most datagrams."""
        return self.constant_us + self.datagrams * self.datagram_us


class ClientWork(NamedTuple, Generic[T]):
    """A measurement of each operation: a push, a batch, and an update of its priorities."""

    push: T
    sample: T
    update: T


class Spent(NamedTuple):
    """What one operation took: its datagrams, and microseconds of processor time outside of the transport."""

    datagrams: int
    us: float


def operations(transport: Any, name: str, repetitions: int) -> ClientWork[list[Spent]]:
    """Push, sample and update over a `Metered` transport; return what each operation took each time, without the first
    ones."""
    spec, data, priorities = data_of(WORKLOADS[name], SCALES[name][-1])
    batch = SAMPLE // SCALES[name][-1]
    found: ClientWork[list[Spent]] = ClientWork([], [], [])
    with ReplayClient(transport, spec) as client:

        def took() -> Spent:
            datagrams, spent_s = transport.take()
            return Spent(datagrams, 1e6 * spent_s)

        for _ in range(repetitions):
            took()
            client.extend(data, priorities)
            client.flush()
            found.push.append(took())
            items = client.sample(batch).items
            found.sample.append(took())
            client.update_priority(items, np.ones(batch))
            client.flush()
            found.update.append(took())
    return ClientWork(*(spent[1:] for spent in found))


def fitted(turns: Sequence[Sequence[Spent]]) -> OwnWork:
    """Return the own work of an operation by the medians of several turns of the same repetitions.

    As its table fills, a batch has more different items and so more datagrams: its constant part is what does not grow
    with them. An operation whose datagrams are always as many has no constant part.
    """
    datagrams = np.array([spent.datagrams for spent in turns[0]])
    spent_us = np.median([[spent.us for spent in turn] for turn in turns], axis=0)
    most, slope = int(datagrams.max()), 0.0
    if datagrams.min() != most:
        slope = max(0.0, float(np.polyfit(datagrams, spent_us, 1)[0]))
        constant = float(np.median(spent_us - slope * datagrams))
        if constant > 0:
            return OwnWork(constant, slope, most)
    return OwnWork(0.0, float(np.median(spent_us / datagrams)), most)


def record(name: str, repetitions: int, config: Config = BUILD) -> Recording:
    """Record what a client receives from the compiled switch."""
    recordings = []

    def work(program: Program) -> None:
        recorder = Recorder(program.transport())
        operations(Metered(recorder), name, repetitions)
        recordings.append(recorder.recording)

    run_programs(config, [work], [machine(Costs())])
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
) -> tuple[ClientWork[OwnWork], ClientWork[OwnWork]]:
    """Return the client's own work for a workload with its part in C, and in Python alone."""
    recording = record(name, repetitions, config)
    found: tuple[list[ClientWork[list[Spent]]], list[ClientWork[list[Spent]]]] = ([], [])
    for _ in range(turns):
        for library, into in zip((compiled_library(), None), found, strict=True):
            with playing(recording, realtime=realtime) as connect, used_library(library), before_others(realtime):
                into.append(operations(Metered(connect()), name, repetitions))
    compiled, alone = (ClientWork(*map(fitted, zip(*works, strict=True))) for works in found)
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

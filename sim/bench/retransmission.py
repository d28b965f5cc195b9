"""`python -m sim.bench.retransmission`: the time of sums on a lossy network, by the driver and by an outside client.

Four workers sum arrays one after the other at a compiled switch, in virtual time: the figures are the same on every
machine. With `--real` they are processes at UDP sockets of `python -m sim.emulator`, and the figures are this
machine's.
"""

import multiprocessing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch import Worker
from iswitch.config import Config
from iswitch.driver.transport import Transport
from iswitch.driver.udp import UdpTransport
from sim.bench.allreduce import emulator
from sim.bench.outside import OutsideClient
from sim.emulator.cluster import Cluster
from sim.emulator.counters import counters
from sim.emulator.defaults import EMULATED
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.program import Machine, Program

__all__ = ["CLIENTS", "RATE_BPS", "REPETITIONS", "SIZES", "Sums", "in_real_time", "in_virtual_time"]

WORLD = 4
SIZES = {"1.4 KB": 352, "40 KB": 10_000, "400 KB": 100_000}
LOSSES = (0.0, 0.01, 0.05, 0.2)
RATE_BPS = 100e9
FRACTION = 44
REPETITIONS = {"1.4 KB": 200, "40 KB": 40, "400 KB": 10}


class Sums(NamedTuple):
    """`seconds` of each sum, from its first worker's begin to its last one's end. `repeats`: retransmissions for each
    contribution."""

    seconds: list[float]
    repeats: float

    @property
    def mean_s(self) -> float:
        return sum(self.seconds) / len(self.seconds)


class _Spans(NamedTuple):
    """Of one worker: begin and end of each sum, retransmissions, contributions."""

    times: list[tuple[float, float]]
    resent: int
    segments: int


def driver(transport: Transport, rank: int, size: int, repetitions: int) -> _Spans:
    """Sum by `iswitch.Worker`."""
    with Worker(world=WORLD, rank=rank, transport=transport, timeout_s=60) as worker:
        return _sums(worker, worker.elements, transport.now, rank, size, repetitions)


def outside(transport: Transport, rank: int, size: int, repetitions: int, *, fixed_s: float | None = None) -> _Spans:
    """Sum by `OutsideClient`."""
    client = OutsideClient(transport, world=WORLD, rank=rank, fixed_s=fixed_s)
    spans = _sums(client, client.membership.elements, transport.now, rank, size, repetitions)
    client.close()
    return spans


def _sums(client: Any, elements: int, now: Callable[[], float], rank: int, size: int, repetitions: int) -> _Spans:
    times, resent = [], 0
    client.allreduce(np.zeros(size, np.float32))  # all are there, and the first delays are known
    for number in range(repetitions):
        terms = [_term(size, each, number) for each in range(WORLD)]
        array = terms[rank].copy()
        begun = now()
        resent += client.allreduce(array).retransmissions
        times.append((begun, now()))
        if array.tobytes() != _exact_sum(terms).tobytes():
            raise RuntimeError(f"sum {number} of rank {rank} is wrong")
    return _Spans(times, resent, -(-size // elements) * repetitions)


def _term(size: int, rank: int, number: int) -> np.ndarray:
    """Return the array of a rank in a sum."""
    return np.random.default_rng([rank, number]).standard_normal(size, np.float32)


def _exact_sum(terms: list[np.ndarray]) -> np.ndarray:
    """Return the sum of `window64`: terms as multiples of 2^-44, whose sum float64 holds exactly, rounded once."""
    unit = 2.0**FRACTION
    return (sum(np.rint(term.astype(np.float64) * unit) for term in terms) / unit).astype(np.float32)


CLIENTS = {"driver": driver, "outside": outside, "fixed": partial(outside, fixed_s=0.02)}
"""`fixed`: a time-out of 20 ms without a back-off."""
COMPARED = ("driver", "outside")
"""The clients of the table."""


def _gathered(spans: list[_Spans]) -> Sums:
    times = np.array([span.times for span in spans])  # (worker, sum, begin and end)
    seconds = times[:, :, 1].max(axis=0) - times[:, :, 0].min(axis=0)
    return Sums(seconds.tolist(), sum(span.resent for span in spans) / sum(span.segments for span in spans))


def in_virtual_time(
    client: str,
    *,
    size: int,
    repetitions: int,
    loss: float,
    ports: int = WORLD,
    config: Config | None = None,
    rate_bps: float = 10e9,
    seed: int = 1,
) -> tuple[Sums, dict[str, int]]:
    """Sum with `WORLD` programs at so many ports; return their times and the switch's counters."""
    machine = Machine(rates=Rates(loss=loss, delay_us=1), rate_bps=rate_bps)

    def work(rank: int, program: Program) -> _Spans:
        return CLIENTS[client](program.transport(), rank, size, repetitions)

    with Board(config or Config()) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric, seed=seed)
        for rank in range(WORLD):
            cluster.add((0, rank % ports), partial(work, rank), name=f"rank {rank}", machine=machine)
        cluster.run()
        return _gathered([program.result for program in cluster.programs]), counters(board)


def in_real_time(
    client: str, *, size: int, repetitions: int, loss: float, ports: int = WORLD
) -> tuple[Sums, dict[str, int]]:
    """Do the same with processes at UDP sockets of an emulator."""
    summary: dict[str, Any] = {}
    with emulator(summary, "--loss", str(loss)) as found, multiprocessing.get_context("spawn").Pool(WORLD) as pool:
        calls = [(client, f"127.0.0.1:{found[rank % ports]}", rank, size, repetitions) for rank in range(WORLD)]
        sums = _gathered(pool.starmap(_process, calls, chunksize=1))
    return sums, summary["counters"]


def _process(client: str, address: str, rank: int, size: int, repetitions: int) -> _Spans:
    return CLIENTS[client](UdpTransport(address), rank, size, repetitions)


def main(
    real: Annotated[bool, typer.Option("--real", help="Processes and UDP sockets in this machine's time.")] = False,
    quick: Annotated[bool, typer.Option(help="A quarter of the sums; for a look, not for a record.")] = False,
    size: Annotated[str, typer.Option(help=f"Only this size: {', '.join(SIZES)}.")] = "",
    loss: Annotated[float | None, typer.Option(help="Only this chance that a frame is lost, each way.")] = None,
    ports: Annotated[int, typer.Option(min=1, max=WORLD, help="Ports of the switch that the workers share.")] = WORLD,
) -> None:
    """Print the time of sums on a lossy network, by the driver and by an outside client."""
    if size not in ("", *SIZES):
        raise typer.BadParameter(f"size must be one of {', '.join(SIZES)}, not {size!r}")
    table = Table(
        "size",
        "loss",
        *(f"{client}: {what}" for client in COMPARED for what in ("ms", "95%", "again", "waits")),
        "ratio",
        title=f"{WORLD} workers at {ports} port{'s' * (ports > 1)}, "
        f"{'UDP sockets in real time' if real else 'virtual time'}",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    run = in_real_time if real else partial(in_virtual_time, rate_bps=RATE_BPS, config=EMULATED)
    for name in [size] if size else SIZES:
        for chance in LOSSES if loss is None else [loss]:
            row, means = [], []
            for client in COMPARED:
                repetitions = max(4, REPETITIONS[name] // (4 if quick else 1))
                sums, counters = run(client, size=SIZES[name], repetitions=repetitions, loss=chance, ports=ports)
                means.append(sums.mean_s)
                waits = sum(count for counter, count in counters.items() if counter.endswith("TX_WAIT_RESULT"))
                row += [
                    f"{1e3 * sums.mean_s:.2f}",
                    f"{1e3 * np.percentile(sums.seconds, 95):.2f}",
                    f"{sums.repeats:.3f}",
                    str(waits),
                ]
            table.add_row(name, f"{chance:.0%}", *row, f"{means[0] / means[1]:.2f}")
    Console(width=120).print(table)
    print(
        "ms: mean of a sum; 95%: of the sums take less; again: repeats for each contribution; waits: results that "
        "waited for a port"
    )


if __name__ == "__main__":
    typer.run(main)

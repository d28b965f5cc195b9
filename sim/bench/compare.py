"""AllReduce in real time, side by side: the software switch, gloo, a TCP parameter server and a TCP ring.

`python -m sim.bench.compare --out build/compare.png` prints a table and draws it; `make bench` has the same figures.
All systems run on this machine, one after another, with the same processes and sizes. The workers call one AllReduce
after another, so a call waits for the slowest worker, as in training.
"""

import multiprocessing
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch.switch.sizing import elements_for
from iswitch.wire import FRAME_BYTES
from sim.bench.compare_systems import ECHO, HALF, HOST, OTHER_CALLS, SYSTEMS
from sim.cluster.realtime import run_before_others

__all__ = ["SIZES", "WORLDS", "Timing", "figures", "measure"]

SIZES = {"40KB": 40_000, "157KB": 157_000, "1MB": 1_000_000, "3.3MB": 3_300_000, "6.4MB": 6_400_000, "25MB": 25_000_000}
WORLDS = (2, 4, 8)
BUDGET_BYTES = 200_000_000
"""Bytes that a worker reduces in one measurement, if the number of repetitions allows."""
REPETITIONS = (8, 300)
WARM_UP = 3
ALL = {**SYSTEMS, **OTHER_CALLS, "bf16": HALF, "echo": ECHO}
SPAWN = multiprocessing.get_context("spawn")


class Timing(NamedTuple):
    """Times of one AllReduce. `ms`: median over calls and workers; `low` and `high`: its tenth and ninetieth
    percentile. `cpu_ms`: processor time of all processes, the server's included."""

    ms: float
    low: float
    high: float
    cpu_ms: float


def measure(
    system: str, size_bytes: int, world: int, *, repetitions: int | None = None, realtime: bool = False
) -> Timing:
    """Measure one system.

    Parameters
    ----------
    system : str
        Name of the system.
    size_bytes, world : int
        Size of each worker's array, and the number of workers.
    repetitions : int, optional
        Calls that are measured.
    realtime : bool
        If True, no other program runs on a core that the system needs.

    Raises
    ------
    RuntimeError
        If a worker's sum is wrong.
    """
    count = repetitions or int(np.clip(BUDGET_BYTES // size_bytes, *REPETITIONS))
    served = ALL[system].serve
    here, there = SPAWN.Pipe()
    server = SPAWN.Process(target=served, args=(there, world, size_bytes), daemon=True) if served else None
    if server:
        server.start()
        address = here.recv()
        if realtime:
            run_before_others(server.pid)
    else:
        address = free_ports(world)
    results: Any = SPAWN.Queue()
    workers = [
        SPAWN.Process(target=work, args=(system, address, rank, world, size_bytes, count, results, realtime))
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


def work(
    system: str, address: Any, rank: int, world: int, size_bytes: int, count: int, results: Any, realtime: bool
) -> None:
    """Run one worker, and put its times, its processor time and an error into `results`."""
    try:
        gradients = [
            np.random.default_rng(k).integers(-999, 999, size_bytes // 4).astype("<f4") / 1024 for k in range(world)
        ]
        total, array, spans = (ALL[system].expected(gradients), np.empty(size_bytes // 4, "<f4"), np.empty(count))
        with ExitStack() as stack:
            reduce = ALL[system].connect(stack, address, rank, world)
            if realtime:
                run_before_others()
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


def timings(quick: bool) -> Iterator[tuple[str, int, str, Timing]]:
    """Yield all measurements: name of the size, workers, system, times."""
    for name in ("40KB", "1MB") if quick else SIZES:
        for world in (4,) if quick else WORLDS:
            for system in SYSTEMS:
                yield name, world, system, measure(system, SIZES[name], world)


def figures(quick: bool) -> Iterator[tuple[str, float, str]]:
    """Yield all figures: key, value, unit."""
    medians: dict[tuple[str, int], float] = {}
    for name, world, system, timing in timings(quick):
        key = f"compare.{system}.{name}.{world}w"
        yield f"{key}.ms", timing.ms, f"ms ({timing.low:.3g} to {timing.high:.3g})"
        yield f"{key}.cpu_ms", timing.cpu_ms, "ms of processor time, all processes"
        yield f"{key}.cpu_ns_per_byte", 1e6 * timing.cpu_ms / (SIZES[name] * world), "ns of it for a worker's byte"
        if system == "iswitch":
            medians[name, world] = timing.ms
        else:
            yield f"{key}.ratio", timing.ms / medians[name, world], "x iswitch"
    yield from other_calls(("40KB",) if quick else ("40KB", "157KB", "6.4MB"))
    yield from half_width(("40KB",) if quick else ("157KB", "6.4MB"), pairs=1 if quick else 5)
    yield from goodput("6.4MB")


def half_width(sizes: Iterable[str], *, pairs: int = 5) -> Iterator[tuple[str, float, str]]:
    """Yield the bytes that a worker sends for a sum of float32 numbers, and its times, with four and with two bytes an
    element. The two take turns."""
    most = elements_for(HOST)
    for name in sizes:
        numbers = SIZES[name] // 4
        found = [[measure(system, SIZES[name], 4) for system in ("iswitch", "bf16")] for _ in range(pairs)]
        for system, element_bytes, column in (("window64", 4, 0), ("bf16", 2, 1)):
            key, timings = f"compare.half_width.{system}.{name}.4w", [pair[column] for pair in found]
            yield f"{key}.bytes", -(-numbers // most) * FRAME_BYTES + numbers * element_bytes, "bytes from a worker"
            yield f"{key}.ms", float(np.median([timing.ms for timing in timings])), "ms"
            yield f"{key}.cpu_ms", float(np.median([timing.cpu_ms for timing in timings])), "ms of processor time"


def other_calls(sizes: Iterable[str]) -> Iterator[tuple[str, float, str]]:
    """Yield the times of a broadcast, and of a vector that all workers push, beside that of a sum."""
    for name in sizes:
        for call in ("iswitch", *OTHER_CALLS):
            timing = measure(call, SIZES[name], 4)
            key = f"compare.calls.{'allreduce' if call == 'iswitch' else call}.{name}.4w"
            yield f"{key}.ms", timing.ms, f"ms ({timing.low:.3g} to {timing.high:.3g})"
            yield f"{key}.cpu_ms", timing.cpu_ms, "ms of processor time, all processes"


def goodput(name: str, *, pairs: int = 9) -> Iterator[tuple[str, float, str]]:
    """Yield the rate of one worker's sums, and that of bursts which another process sends back as they are.

    The two take turns, because a shared machine changes its speed within seconds. The ratio is the median of those of
    neighbouring measurements.
    """
    rates = np.array(
        [
            [SIZES[name] / measure(system, SIZES[name], 1, repetitions=100).ms / 1e6 for system in ("iswitch", "echo")]
            for _ in range(pairs)
        ]
    )
    for system, rate in zip(("iswitch", "echo"), np.median(rates, axis=0), strict=True):
        yield f"compare.goodput.{system}", float(rate), "GB/s there, and as much back"
    low, ratio, high = np.percentile(rates[:, 0] / rates[:, 1], [25, 50, 75])
    yield "compare.goodput.ratio", float(ratio), f"of the bare bursts (half of the pairs: {low:.3g} to {high:.3g})"


def draw(found: Iterable[tuple[str, int, str, Timing]], path: Path) -> None:
    """Draw the times over the sizes, one panel for each number of workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = list(found)
    worlds = sorted({world for _, world, _, _ in rows})
    figure, panels = pyplot.subplots(1, len(worlds), figsize=(4.2 * len(worlds), 4), sharey=True, squeeze=False)
    for panel, world in zip(panels[0], worlds, strict=True):
        for system in SYSTEMS:
            points = [(SIZES[name], timing) for name, at, other, timing in rows if (at, other) == (world, system)]
            sizes, times = [size for size, _ in points], [timing for _, timing in points]
            (line,) = panel.plot(sizes, [timing.ms for timing in times], marker="o", label=system)
            low, high = [timing.low for timing in times], [timing.high for timing in times]
            panel.fill_between(sizes, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        panel.set(xscale="log", yscale="log", xlabel="bytes", title=f"{world} workers")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("AllReduce, ms (median; 10 to 90 %)")
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def print_figures(console: Console, figures: Iterable[tuple[str, float, str]]) -> None:
    """Print a line for each figure."""
    for key, value, unit in figures:
        console.print(f"{key} {value:,.0f} {unit}" if value >= 1000 else f"{key} {value:.3g} {unit}", highlight=False)


def main(
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("build/compare.png"),
    quick: Annotated[bool, typer.Option(help="Two sizes, four workers.")] = False,
    only_goodput: Annotated[bool, typer.Option(help="One worker beside bare bursts, no table.")] = False,
    only_half_width: Annotated[bool, typer.Option(help="Two bytes an element beside four, no table.")] = False,
) -> None:
    """Measure all systems, print a table, and draw it."""
    console, rows = Console(), []
    if only_goodput:
        print_figures(console, goodput("6.4MB"))
        return
    if only_half_width:
        print_figures(console, half_width(("157KB", "6.4MB")))
        return
    table = Table("size", "workers", "system", "ms", "10 to 90 %", "processor ms", "ns a byte")
    for name, world, system, timing in timings(quick):
        rows.append((name, world, system, timing))
        shown = (f"{timing.ms:.3g}", f"{timing.low:.3g} to {timing.high:.3g}", f"{timing.cpu_ms:.3g}")
        table.add_row(name, str(world), system, *shown, f"{1e6 * timing.cpu_ms / (SIZES[name] * world):.3g}")
        console.print(f"[dim]{name} {world} {system} {timing.ms:.3g} ms", highlight=False)
    console.print(table)
    print_figures(console, goodput("6.4MB"))
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(rows, out)
    console.print(f"{out} shows it", highlight=False)


if __name__ == "__main__":
    typer.run(main)

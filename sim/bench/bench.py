"""`make bench`: speed of the switch and its driver, as a table and as `build/bench.json`.

All figures are measured now, none is stored. Words per cycle and latencies are counted in clock cycles of the RTL and
do not depend on the machine; kilohertz and microseconds do, and `machine.load` has the load of the machine.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Column, Table

from iswitch.config import Config
from iswitch.wire import Format
from sim.bench import compare, replay_boundary, replay_comparison, replay_report, replay_step, replay_torchrl
from sim.bench.allreduce import allreduce
from sim.bench.delivery import deliver, trains, wiring
from sim.bench.isolation import ATTACKS, FLOODS, NOTICES, PLACES, count_notices, victim_cycles
from sim.bench.replay_baselines import baselines
from sim.bench.sumtree import ops_per_cycle, step_cycles
from sim.bench.throughput import engine_khz, latencies, mixed, ordinary_throughput, throughput
from sim.cluster import headline
from sim.emulator.engine import Board

__all__ = ["MEASUREMENTS", "Figure", "shown"]

OUT = Path(__file__).parents[2] / "build" / "bench.json"
CONFIG = Config()
HALF_WIDTH = replace(CONFIG, half_width=True)
FULL = CONFIG.elements
DUPLICATES = 0.01
REPLAY_LEAVES = 1 << 20


class Figure(NamedTuple):
    """A measured figure. `value` is None if it cannot be measured here; the unit then has the reason. `listed`: it is
    in the common table."""

    key: str
    value: float | None
    unit: str
    listed: bool = True


Measurement = Callable[[bool], Iterator[Figure]]
"""A measurement; its argument asks for a quick run."""


def words_per_cycle(
    name: str,
    quick: bool,
    *,
    config: Config = CONFIG,
    elements: int = FULL,
    format: Format = Format.WINDOW64,
    duplicates: float = 0,
) -> Iterator[Figure]:
    with Board(config, trace=True, stamps=True) as board:
        run = throughput(
            board, frames=1_000 if quick else 10_400, elements=elements, format=format, duplicates=duplicates
        )
    yield Figure(f"{name}.words_per_cycle", run.words_per_cycle, "words/cycle")
    yield Figure(f"{name}.elements_per_cycle", run.elements_per_cycle, "elements/cycle")


def beside_ordinary(quick: bool) -> Iterator[Figure]:
    with Board(Config(), trace=True, stamps=True) as board:
        run = mixed(board, frames=250 if quick else 2_600)
    yield Figure("mixed.words_per_cycle", run.words_per_cycle, "words/cycle")
    yield Figure("mixed.share_least", run.share_least, "of the most")


def forwarding(quick: bool) -> Iterator[Figure]:
    for name, size in (("min", 60), ("max", 1514)):
        with Board(Config(), trace=True, stamps=True) as board:
            run = ordinary_throughput(board, frames=1_000 if quick else 10_400, size=size)
        yield Figure(f"forward.words_per_cycle_{name}", run.words_per_cycle, "words/cycle")


def latency(
    name: str,
    quick: bool,
    *,
    config: Config = CONFIG,
    format: Format = Format.WINDOW64,
    elements: tuple[int, ...] = (1, 44, FULL),
) -> Iterator[Figure]:
    with Board(config, trace=True, stamps=True) as board:
        found = {count: latencies(board, count, format=format) for count in elements}
    yield Figure(name, max(cycles.first for cycles in found.values()), "cycles")
    for count, cycles in found.items():
        yield Figure(f"{name}.{count}_elements", cycles.first, "cycles")
        yield Figure(f"{name}.last_to_last.{count}_elements", cycles.last, "cycles")
        yield Figure(f"{name}.entry_to_exit.{count}_elements", cycles.whole, "cycles")


def engine(name: str, quick: bool) -> Iterator[Figure]:
    khz, cpu_khz = engine_khz(name, frames=400 if quick else 1_600, repetitions=3 if quick else 5)
    yield Figure(f"emulator.{name}.khz", khz, "kHz")
    yield Figure(f"emulator.{name}.khz_of_cpu", cpu_khz, "kHz by processor time")


def driver(label: str, size_bytes: int, repetitions: int, quick: bool) -> Iterator[Figure]:
    found = allreduce(size_bytes, repetitions=min(3, repetitions) if quick else repetitions)
    yield Figure(f"driver.allreduce_us.{label}", found.median_us, "us")
    yield Figure(f"driver.allreduce_us.{label}.rtl_share", found.rtl_share, "of busy time")


def replay(quick: bool) -> Iterator[Figure]:
    for variant, single_copy in (("", False), (".single_copy", True)):
        rate = ops_per_cycle(2_000 if quick else 100_000, capacity=REPLAY_LEAVES, single_copy=single_copy)
        yield Figure(f"replay.ops_per_cycle{variant}", rate, "operations/cycle, in the worst mix")
        yield Figure(
            f"replay.step_cycles{variant}",
            step_cycles(capacity=REPLAY_LEAVES, single_copy=single_copy),
            "cycles for 512 samples and 512 updates",
        )


def replay_baselines(quick: bool) -> Iterator[Figure]:
    found = baselines(quick)
    replay_report.show(found, quick, Console())
    for key, value, unit in replay_report.figures(found):
        yield Figure(key, value, unit, listed=value is None)


def replay_beside_torchrl(quick: bool) -> Iterator[Figure]:
    found = replay_torchrl.measured(quick)
    replay_torchrl.show(*found, Console())
    for key, value, unit in replay_torchrl.figures(*found):
        yield Figure(key, value, unit, listed=value is None)


def isolation(quick: bool) -> Iterator[Figure]:
    alone = victim_cycles()
    yield Figure("isolation.victim_cycles.alone", alone, "cycles a frame")
    for attack in ATTACKS:
        cycles = victim_cycles(attack)
        yield Figure(f"isolation.victim_cycles.{attack}", cycles, "cycles a frame")
        yield Figure(f"isolation.victim_cycles.{attack}.ratio", cycles / alone, "of alone")


def notices(quick: bool) -> Iterator[Figure]:
    for place in PLACES:
        for flood in FLOODS:
            yield Figure(f"isolation.notices.{place}.{flood}", count_notices(flood, place), f"of {NOTICES} arrive")


def delivery(quick: bool) -> Iterator[Figure]:
    config = Config()
    for together in (1, 3, 7, 8):
        for length in (1, 16, 64):
            ports = wiring(together)
            found = deliver(config, ports, trains(config, len(ports), length))
            key = f"delivery.{together}_behind_a_port.trains_of_{length}"
            yield Figure(f"{key}.lost", found.lost, f"of {config.window * len(ports)} copies")
            yield Figure(f"{key}.waited", found.waited, f"of {config.window} results")


MEASUREMENTS: dict[str, Measurement] = {
    "aggregate.window64.words_per_cycle": partial(words_per_cycle, "aggregate.window64"),
    "aggregate.window64.duplicates_1pct": partial(
        words_per_cycle, "aggregate.window64.duplicates_1pct", duplicates=DUPLICATES
    ),
    "aggregate.fp32": partial(words_per_cycle, "aggregate.fp32", format=Format.FP32),
    "aggregate.minimum_size": partial(words_per_cycle, "aggregate.minimum_size", elements=1),
    "aggregate.latency_cycles": partial(latency, "aggregate.latency_cycles"),
    "aggregate.bf16": partial(words_per_cycle, "aggregate.bf16", config=HALF_WIDTH, format=Format.BF16),
    "aggregate.bf16.latency_cycles": partial(
        latency, "aggregate.bf16.latency_cycles", config=HALF_WIDTH, format=Format.BF16, elements=(2, 44, FULL)
    ),
    "aggregate.half_width.latency_cycles": partial(
        latency, "aggregate.half_width.latency_cycles", config=HALF_WIDTH, elements=(FULL,)
    ),
    "mixed": beside_ordinary,
    "forward.words_per_cycle": forwarding,
    "isolation.victim_cycles": isolation,
    "isolation.notices": notices,
    "delivery": delivery,
    "replay.baselines": replay_baselines,
    "replay.boundary": lambda quick: (Figure(*found) for found in replay_boundary.figures(quick)),
    "replay.learner_step_cycles": lambda quick: (Figure(*found) for found in replay_step.figures(quick)),
    "replay.torchrl": replay_beside_torchrl,
    "replay": replay,
    "compare": lambda quick: (Figure(*found) for found in compare.figures(quick)),
    "cluster": lambda quick: (Figure(*found) for found in headline.figures()),
    "cluster.replay": lambda quick: (Figure(*found) for found in replay_comparison.figures()),
    "emulator.verilator": partial(engine, "verilator"),
    "emulator.cxxrtl": partial(engine, "cxxrtl"),
    "driver.allreduce_us.40KB": partial(driver, "40KB", 40_000, 41),
    "driver.allreduce_us.160KB": partial(driver, "160KB", 160_000, 21),
    "driver.allreduce_us.3.3MB": partial(driver, "3.3MB", 3_300_000, 5),
    "driver.allreduce_us.6.4MB": partial(driver, "6.4MB", 6_400_000, 3),
}
"""By the prefix of the keys that each gives. Sizes of the driver's sums: gradients of the agents in Li et al., ISCA
2019, from PPO to DQN."""


def main(
    only: Annotated[str, typer.Option(help="Only keys that begin so.")] = "",
    quick: Annotated[bool, typer.Option(help="Fewer frames and repetitions; for a look, not for a record.")] = False,
) -> None:
    """Measure the speed of the switch and its driver."""
    console = Console()
    above = max((name for name in MEASUREMENTS if only.startswith(name)), key=len, default="")
    chosen = [measure for name, measure in MEASUREMENTS.items() if name.startswith(only) or name == above]
    if not chosen:
        raise typer.BadParameter(f"no key begins with {only!r}; there are {', '.join(MEASUREMENTS)}")
    figures = [
        Figure("machine.cpus", os.cpu_count() or 0, "processors"),
        Figure("machine.load", os.getloadavg()[0], "processes, at the start"),
    ]
    for measure in chosen:
        for figure in measure(quick):
            # Write after each figure, so that an interrupted run keeps its figures.
            if figure.key.startswith(only):
                figures.append(figure)
                if figure.listed:
                    console.print(f"[dim]{figure.key} {shown(figure.value)} {figure.unit}", highlight=False)
                write(figures)
    table = Table(Column("key", no_wrap=True), "value", "unit", title="quick look, not for a record" if quick else None)
    table.columns[1].justify = "right"
    for figure in figures:
        if figure.listed:
            table.add_row(figure.key, shown(figure.value), figure.unit)
    console.print(table)


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4f}"


def write(figures: list[Figure]) -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(
        json.dumps({figure.key: {"value": figure.value, "unit": figure.unit} for figure in figures}, indent=1) + "\n"
    )


if __name__ == "__main__":
    typer.run(main)

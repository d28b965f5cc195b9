"""`python -m sim.bench.replay_report`: the sampler and the baselines as tables, as a picture
(`build/replay_baselines.png`), and as figures of `make bench`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from sim.bench.replay_baselines import BATCHES, CAPACITIES, OPERATIONS, Baselines, baselines
from sim.bench.replay_redis import ACTORS, PUSH, SAMPLE, TRANSITIONS

__all__ = ["PICTURE", "draw", "figures", "show", "tables"]

PICTURE = Path(__file__).parents[2] / "build" / "replay_baselines.png"
TITLES = {"numpy": "numpy", "cpprb": "cpprb", "torchrl": "TorchRL", "native": "C++ tree", "redis": "Redis + numpy"}


def power(capacity: int) -> str:
    return f"2^{capacity.bit_length() - 1}"


def figures(found: Baselines) -> Iterator[tuple[str, float | None, str]]:
    """Yield key, value and unit of each figure. A missing figure has None, and the reason instead of a unit."""
    for rates in found.rates:
        for operation in OPERATIONS:
            yield (
                f"replay.baselines.{rates.system}.{power(rates.capacity)}.{rates.batch}.{operation}",
                getattr(rates, operation),
                "items/s",
            )
    for system, why in found.missing.items():
        yield f"replay.baselines.{system}", None, f"missing: {why}"
    for cycles in found.cycles:
        for operation in OPERATIONS:
            yield (
                f"replay.baselines.sampler.{power(cycles.capacity)}.{cycles.batch}.{operation}",
                getattr(cycles, operation),
                "cycles",
            )
    for row in found.needed:
        yield (
            f"replay.baselines.clock_to_match.{power(row.capacity)}.{row.batch}.{row.operation}",
            row.hertz / 1e6,
            f"MHz at which the sampler does as many items/s as {TITLES[row.fastest]} in its best turn",
        )
    for name, exchange in found.exchanges.items():
        size = f"{TRANSITIONS[name].record_bytes:,} bytes"
        yield (
            f"replay.baselines.redis.{name}.push_us",
            exchange.push_us,
            f"us for {PUSH} items of {size}, {ACTORS} actors pushing",
        )
        yield f"replay.baselines.redis.{name}.pull", exchange.pull_items, f"items/s of {size} into the learner's memory"
        yield f"replay.baselines.redis.{name}.sample_us", exchange.sample_us, f"us for {SAMPLE} items of {size}"


def tables(found: Baselines, quick: bool) -> Iterator[Table]:
    note = " (quick look, not for a record)" if quick else ""
    table = Table("system", "capacity", "batch", title=f"software, thousand items/s, median turn{note}")
    for operation in OPERATIONS:
        table.add_column(operation, justify="right")
    for row in sorted(found.rates, key=lambda row: (row.capacity, row.batch)):
        table.add_row(
            TITLES[row.system],
            power(row.capacity),
            str(row.batch),
            *(f"{getattr(row, operation) / 1e3:,.1f}" for operation in OPERATIONS),
            end_section=row.system == found.rates[-1].system,
        )
    for system, why in found.missing.items():
        table.add_row(TITLES[system], "missing", "", "", "", "", "")
        table.caption = f"{table.caption or ''}\nmissing {TITLES[system]}: {why}".strip()
    yield table

    table = Table(
        "capacity",
        "batch",
        title="the sampler, compiled RTL: cycles for a batch (MHz that match the fastest software in its best turn)",
    )
    for operation in OPERATIONS:
        table.add_column(operation, justify="right")
    clocks = {
        (row.capacity, row.batch, row.operation): f" ({row.hertz / 1e6:.1f}: {TITLES[row.fastest]})"
        for row in found.needed
    }
    for cycles in found.cycles:
        table.add_row(
            power(cycles.capacity),
            str(cycles.batch),
            *(f"{getattr(cycles, operation):,}{clocks.get((*cycles[:2], operation), '')}" for operation in OPERATIONS),
        )
    yield table

    if found.exchanges:
        table = Table(
            "transition",
            "bytes",
            Column(f"push {PUSH}, us", justify="right"),
            Column("pull, items/s", justify="right"),
            Column("pull, MB/s", justify="right"),
            Column(f"sample {SAMPLE}, us", justify="right"),
            title=f"by way of Redis: {ACTORS} actors push, the learner pulls all and samples{note}",
        )
        for name, exchange in found.exchanges.items():
            size = TRANSITIONS[name].record_bytes
            table.add_row(
                name,
                f"{size:,}",
                f"{exchange.push_us:,.0f}",
                f"{exchange.pull_items:,.0f}",
                f"{exchange.pull_items * size / 1e6:,.0f}",
                f"{exchange.sample_us:,.0f}",
            )
        yield table


def draw(found: Baselines, path: Path = PICTURE) -> None:
    """Draw the rate of software in a learner's steps on the left, and the clock that the sampler needs for the same
    rate on the right. Redis is left out: a learner behind it samples with numpy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    places = {
        (capacity, batch): group * (len(BATCHES) + 0.5) + k
        for group, capacity in enumerate(CAPACITIES)
        for k, batch in enumerate(BATCHES)
    }
    systems = [system for system in dict.fromkeys(row.system for row in found.rates) if system != "redis"]
    cycles = {(row.capacity, row.batch): row.step for row in found.cycles}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    width = 0.8 / max(1, len(systems))
    for k, system in enumerate(systems):
        rows = [row for row in found.rates if row.system == system]
        at = [places[row.capacity, row.batch] + (k - (len(systems) - 1) / 2) * width for row in rows]
        steps = [row.best[OPERATIONS.index("step")] / 1e6 for row in rows]
        left.bar(at, steps, width, label=TITLES[system])
        right.bar(
            at,
            [step * cycles[row.capacity, row.batch] / row.batch for step, row in zip(steps, rows)],
            width,
            label=TITLES[system],
        )
    left.set(ylabel="million items/s", title="Learner's step in software, best turn: sample, then update")
    right.set(ylabel="MHz", title="Clock at which the sampler (compiled RTL) does as much")
    for axes in (left, right):
        axes.set_xticks(list(places.values()), [f"{batch}\n{power(capacity)}" for capacity, batch in places])
        axes.set(xlabel="batch and capacity", ylim=(0, None))
        axes.grid(axis="y", alpha=0.3)
    lacking = "missing: " + ", ".join(TITLES[name] for name in found.missing) if found.missing else None
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(TITLES), title=lacking)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def show(found: Baselines, quick: bool, console: Console) -> None:
    for table in tables(found, quick):
        console.print(table)
    draw(found)
    console.print(f"picture: {PICTURE.parent.name}/{PICTURE.name}", highlight=False)


def main(quick: Annotated[bool, typer.Option(help="Fewer repetitions; for a look, not for a record.")] = False) -> None:
    """Compare the sampler of the replay service with software for prioritized replay."""
    show(baselines(quick), quick, Console())


if __name__ == "__main__":
    typer.run(main)

"""`make soak MINUTES=10 SEED=1`: a tree of compiled switches, with faults, beside the golden models.

python -m sim.bench.soak_long --minutes 10 --seed 1

Runs `sim.bench.soak_network` with one seed after another. The same seed gives the same frames and the same faults. If
a switch differs from its model, the steps since it was switched on are tried again with ever fewer of them, and what
is left is written to `build/soak/`: as captures, and as steps that `--replay` runs again.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from sim.bench.soak_failure import captured, fails, from_text, minimised, to_text
from sim.bench.soak_network import Figures, NetworkSoak, SoakError
from sim.bench.soak_pair import Frames
from sim.emulator.toolchain import ROOT

__all__ = ["RECORD", "added", "record", "replayed", "report", "table"]

FAILED = ROOT / "build" / "soak"
RECORD = ROOT / "docs" / "soak.json"
"""The figures of docs/verification.md."""
ROUNDS = 300
"""Rounds with faults of one seed."""


def added(one: Figures, other: Figures) -> Figures:
    """Return the sums of figures."""
    return Figures(*(a + b for a, b in zip(one, other)))


def held(path: Path) -> tuple[list[int], Figures | None]:
    """Return the seeds and the figures that a file holds."""
    if not path.exists():
        return [], None
    found = json.loads(path.read_text())
    return found["seeds"], Figures(
        *(Counter(part) if isinstance(part, dict) else part for part in found["total"].values())
    )


def record(path: Path, seed: int, figures: Figures) -> None:
    """Add the figures of a seed to those that a file holds. A seed counts once."""
    seeds, total = held(path)
    if seed not in seeds:
        total = figures if total is None else added(total, figures)
        path.write_text(json.dumps({"seeds": sorted([*seeds, seed]), "total": total._asdict()}, indent=1) + "\n")


def table(path: Path) -> str:
    """Return what a file holds, as a table in Markdown."""
    seeds, total = held(path)
    if total is None:
        raise FileNotFoundError(f"{path} holds no figures: run a soak with `--out`")
    listed = lambda counts: ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count)
    rows = {
        "seeds": ", ".join(map(str, seeds)),
        "cycles of the three switches": f"{total.cycles:,}",
        "frames that entered them": f"{total.frames:,}",
        "faults": listed(total.faults),
        "collectives and asynchronous segments checked": listed(total.complete),
        "events of jobs": listed(total.events),
        "outcomes": listed(total.outcomes),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def report(soak: NetworkSoak, error: SoakError, folder: Path = FAILED) -> str:
    """Write what leads to a failure, and return where."""
    if error.switch is None:
        files = captured(folder, soak.last)
        return f"the last {len(soak.last)} frames of the hosts: {', '.join(map(str, files))}"
    pair, number = soak.pairs[error.switch], error.switch
    seed = pair.settings["seed"]
    steps = minimised(lambda: soak.new_pair(number, seed), pair.log)
    how = "as few as possible" if steps is not None else "not seen again by a new switch"
    kept = pair.log if steps is None else steps
    entered = [
        (step.now_us, (number, entry.port), entry.frame)
        for step in kept
        if isinstance(step, Frames)
        for entry in step.entries
    ]
    files = captured(folder, entered)
    again = folder / "steps.txt"
    again.write_text(to_text(number, seed, kept))
    return f"{len(entered)} frames into switch {number}, {how}: {', '.join(map(str, [again, *files]))}"


def replayed(path: Path) -> bool:
    """Return True if the steps of a file still make a switch differ from its model."""
    switch, seed, steps = from_text(path.read_text())
    soak = NetworkSoak(seed=1)
    try:
        return fails(lambda: soak.new_pair(switch, seed), steps)
    finally:
        soak.close()


def shown(figures: Figures) -> str:
    parts = [
        f"{figures.cycles:,} cycles, {figures.frames:,} frames in {figures.rounds:,} rounds",
        *(
            f"{name}: "
            + ", ".join(f"{kind} {count:,}" for kind, count in getattr(figures, name).most_common() if count)
            for name in ("faults", "complete", "events", "outcomes")
        ),
    ]
    return "\n".join(parts)


def main(
    minutes: Annotated[float, typer.Option(help="How long; the seed that has begun is run to its end.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The first seed.", min=1)] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds with faults of each seed.", min=1)] = ROUNDS,
    out: Annotated[Path | None, typer.Option(help="A file to whose figures those of each seed are added.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Run the steps of a failure again, and nothing else.")] = None,
    show: Annotated[Path | None, typer.Option(help="Print the figures of a file, and nothing else.")] = None,
) -> None:
    """Run a tree of compiled switches beside the golden models, with faults, for some minutes."""
    if show is not None:
        print(table(show))
        return
    if replay is not None:
        differs = replayed(replay)
        print("the switch differs from its model" if differs else "the switch does as its model does")
        sys.exit(differs)
    begun, first, total = time.monotonic(), seed, None
    while total is None or time.monotonic() - begun < 60 * minutes:
        soak = NetworkSoak(seed=seed)
        try:
            soak.run(rounds)
            figures = soak.finish()
        except SoakError as error:
            print(f"seed {seed}, {error}\n{report(soak, error)}")
            sys.exit(1)
        total = figures if total is None else added(total, figures)
        if out is not None:
            record(out, seed, figures)
        print(f"seed {seed}: {figures.cycles:,} cycles, {figures.frames:,} frames", flush=True)
        seed += 1
    print(f"seeds {first} to {seed - 1}: every frame, register and sum right, and no job hangs\n{shown(total)}")


if __name__ == "__main__":
    typer.run(main)

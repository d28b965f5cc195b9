"""Random frames and operations of an attacker beside running jobs, on the compiled switch with its default `Config`.

python -m sim.bench.soak --frames 1000000 --operations 100000 --seed 1

Each promise of docs/security.md for the attacker's place is checked in every round: every sum is compared with exact
integers or with numpy, no member receives a frame of the attacker as one of the switch, every job goes on, and each
frame has exactly one counted outcome.
"""

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from iswitch.wire import Outcome
from sim.bench.attacker import Place
from sim.bench.soak_rounds import Report, Soak

__all__ = ["app"]


def show(reports: list[Report], console: Console) -> None:
    """Print what was done, and where the attacker's frames ended."""
    table = Table("", *(report.place.value for report in reports))
    rows = {
        "the attacker's frames": [report.frames for report in reports],
        "its operations": [report.operations for report in reports],
        "the members' frames": [report.member_frames for report in reports],
        "collectives, all sums checked": [
            sum(count for kind, count in report.complete.items() if "asyn" not in kind) for report in reports
        ],
        "asynchronous segments checked": [
            sum(count for kind, count in report.complete.items() if "asyn" in kind) for report in reports
        ],
        "jobs formed": [report.events["formed"] for report in reports],
        "resets": [report.events["reset"] for report in reports],
        "departures and returns": [report.events["left"] for report in reports],
        "job numbers taken, and freed by the operator": [report.events["squatted"] for report in reports],
        "cycles": [report.cycles for report in reports],
    }
    for name, values in rows.items():
        table.add_row(name, *(f"{value:,}" for value in values))
    for outcome in Outcome:
        table.add_row(f"outcome {outcome.name}", *(f"{report.outcomes[outcome.name]:,}" for report in reports))
    console.print(table)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    frames: Annotated[int, typer.Option(help="Random frames of the attacker, in all places together.")] = 1_000_000,
    operations: Annotated[int, typer.Option(help="Protocol operations of the attacker, likewise.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the jobs' and the attacker's choices.", min=1)] = 1,
    only: Annotated[Place | None, typer.Option(help="One place of the attacker.")] = None,
) -> None:
    """Send random frames and operations of an attacker beside running jobs, and check every sum and every counter."""
    console, reports = Console(), []
    places = [only] if only else list(Place)
    begun = time.perf_counter()
    with Progress(console=console) as progress:
        for place in places:
            soak, goal = Soak(place, seed=seed), (frames + operations) // len(places)
            task = progress.add_task(place.value, total=goal)
            for part in range(100):
                done = (part + 1) * frames // (100 * len(places)), (part + 1) * operations // (100 * len(places))
                soak.run(max(0, done[0] - soak.frames), max(0, done[1] - soak.operations))
                progress.update(task, completed=soak.frames + soak.operations)
                if part % 10 == 9 and not console.is_terminal:
                    console.print(f"{place.value}: {part + 1} %")
            reports.append(soak.finish())
    show(reports, console)
    console.print(f"seed {seed}: no promise was broken, in {time.perf_counter() - begun:,.0f} s")


if __name__ == "__main__":
    app()

"""`python -m iswitch.plan.figures`: make the figures of the GRID paper again, as tables and pictures."""

import sys
from pathlib import Path
from typing import Annotated

from iswitch.distribution import describe_missing, extra_of, missing_from

PROGRAM = "python -m iswitch.plan.figures"
EXTRAS = ("cli", "plan", "schedule")

try:
    import typer
    from rich.console import Console

    from iswitch.plan.figures.chart import draw, print_figure
    from iswitch.plan.figures.simulations import SIMULATED_FIGURES, Simulation, Simulations
    from iswitch.plan.figures.testbed import TESTBED_FIGURES, make_testbed_figure
except ModuleNotFoundError as error:
    if extra_of(error.name) is None:
        raise
    missing = [name for extra in EXTRAS for name in missing_from(extra)]
    raise SystemExit(describe_missing(PROGRAM, missing, *EXTRAS)) from error

__all__ = ["main"]

NUMBERS = (*TESTBED_FIGURES, *SIMULATED_FIGURES)


def main(
    only: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", help="Make this figure only. May be repeated. 4 to 8 are of the testbed, 11 to 18 simulated."
        ),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="Simulate networks of a few switches, in seconds.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the pictures.")] = Path("build/figures"),
    ending: Annotated[str, typer.Option("--format", metavar="png|svg", help="Format of the pictures.")] = "png",
) -> None:
    """Make the figures of the GRID paper again: tables here, pictures in a folder. All take less than half an hour."""
    numbers = sorted(set(only or NUMBERS))
    if unknown := [str(number) for number in numbers if number not in NUMBERS]:
        print(f"--only must be one of {', '.join(map(str, NUMBERS))}, not {unknown[0]}", file=sys.stderr)
        raise typer.Exit(1)
    if ending not in ("png", "svg"):
        print(f"--format must be png or svg, not {ending!r}", file=sys.stderr)
        raise typer.Exit(1)
    console, begun = Console(width=120, highlight=False), set[Simulation]()

    def show(simulation: Simulation) -> None:
        begun.add(simulation)
        scenario = "(b)" if simulation.chosen else "(a)"
        text = f"{len(begun)}/{len(wanted)}: {simulation.fabric.kind} {scenario}, {simulation.workers} workers"
        print(f"simulation {text}, draw {simulation.seed}", file=sys.stderr, flush=True)

    simulations = Simulations(small=small, on_run=show)
    wanted = {each for number in numbers if number in SIMULATED_FIGURES for each in simulations.wanted(number)}
    for number in numbers:
        figure = simulations.make(number) if number in SIMULATED_FIGURES else make_testbed_figure(number)
        print_figure(figure, console)
        path = out / f"grid_{number}.{ending}"
        draw(figure, path)
        console.print(f"{path}\n")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name=PROGRAM)

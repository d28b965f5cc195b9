"""`python -m hw.board.critical_paths`: the critical paths of a board's design, or of one component, in logic levels."""

import time
from typing import Annotated

import typer
from rich.console import Console

from hw.board.boards import BOARDS
from hw.board.shell import Shell
from hw.replay.components import COMPONENTS as SERVICE
from hw.synthesis.timing import PARTS
from hw.synthesis.timing_paths import ROUTE_PS, critical_paths, synthesise

__all__ = ["main"]


def main(
    board: Annotated[str, typer.Option(help="Board whose Config the design has.")] = "netfpga_sume",
    only: Annotated[
        str, typer.Option(help=f"Only this component, its ports counted as registers: {', '.join(PARTS | SERVICE)}.")
    ] = "",
    most: Annotated[int, typer.Option(help="Number of paths to show for each clock.")] = 20,
    through: Annotated[bool, typer.Option(help="Show the signals along each path, too.")] = False,
    route_ps: Annotated[int, typer.Option(help="Delay of a route that Yosys assumes, in picoseconds.")] = ROUTE_PS,
) -> None:
    """Print the critical paths of a design, in logic levels."""
    console = Console(highlight=False, soft_wrap=True)
    if board not in BOARDS:
        raise typer.BadParameter(f"there is no {board!r}; there are {', '.join(BOARDS)}")
    of, begun = BOARDS[board], time.monotonic()
    parts = PARTS | (SERVICE if of.config.replay else {})
    if only and only not in parts:
        raise typer.BadParameter(f"there is no {only!r}; there are {', '.join(parts)}")
    part = parts[only](of.config) if only else Shell(of.config, clock_hz=round(of.core_mhz * 1e6))
    netlist, cells = synthesise(
        f"{board}-{only or 'whole'}", part, family="xc7" if of.family == "ecp5" else of.family, route_ps=route_ps
    )
    for clock, paths in critical_paths(netlist, "top", most=most, ports=bool(only)).items():
        console.print(f"[bold]{clock}")
        for path in paths:
            console.print(f"{path.levels:4}  {path.begin} -> {path.end}", markup=False)
            if through:
                console.print(
                    f"      {' '.join(signal for signal in path.through[1:] if not signal.startswith('$'))}",
                    markup=False,
                    style="dim",
                )
    console.print(f"{cells}, {time.monotonic() - begun:.0f} s", style="dim")


if __name__ == "__main__":
    typer.run(main)

"""`make bitstream`: the whole build of one board in `build/<board>`: a bitstream where a tool exists for it, and the
report."""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hw.board.boards import BOARDS, DEFAULT, DEFAULT_IP, DEFAULT_MAC
from hw.board.shell import parse_operator_key, wire_order

__all__ = ["BUILD", "main", "tables", "verdict"]

BUILD = Path(__file__).parents[2] / "build"


def tables(report: dict[str, Any]) -> list[Table]:
    """Return the report's tables of clocks and resources."""
    shown = lambda number: "unknown" if number is None else f"{number:.2f}"
    clocks = Table("clock", "required MHz", "achieved MHz", "slack ns")
    for name, clock in report.get("clocks", {}).items():
        clocks.add_row(name, *(shown(clock.get(figure)) for figure in ("required_mhz", "achieved_mhz", "slack_ns")))
    resources = Table("", "used", "available", "share")
    for name, resource in report.get("resources", {}).items():
        of = resource["available"]
        resources.add_row(name, f"{resource['used']:,}", f"{of:,}", f"{resource['used'] / of:.0%}" if of else "")
    return [clocks, resources]


def verdict(report: dict[str, Any]) -> str:
    """Return one sentence that says why there is no bitstream, or an empty string."""
    if report["timing_met"]:
        return ""
    missed = [
        f"{name} reaches {clock['achieved_mhz']:.1f} of {clock['required_mhz']:.1f} MHz"
        for name, clock in report["clocks"].items()
        if clock["slack_ns"] < 0
    ]
    late = f" (not routed in time: {', '.join(map(str, report['late']))})" if report["late"] else ""
    return (
        f"no bitstream, as timing is not met with any of the seeds {', '.join(map(str, report['seeds']))}{late}: at "
        f"best {', '.join(missed)}"
    )


def main(
    name: Annotated[str, typer.Argument(metavar="BOARD")] = DEFAULT,
    mac: Annotated[str, typer.Option(help="MAC address of the switch.")] = DEFAULT_MAC,
    ip: Annotated[str, typer.Option(help="IPv4 address of the switch.")] = DEFAULT_IP,
) -> None:
    """Build a board in build/<board>.

    The environment variable OPERATOR_KEY is the switch's operator key; 0, the default, for none. It is no option,
    because command lines are printed and other users see them.
    """
    console = Console()
    if name not in BOARDS:
        console.print(f"there is no board {name!r}; there are:", highlight=False)
        for board in BOARDS.values():
            console.print(f"  {board.name:<20} {board.title}, {board.part}", highlight=False)
        sys.exit(2)
    for option, address, separator in (("--mac", mac, ":"), ("--ip", ip, ".")):
        try:
            wire_order(address if separator in address else "")
        except ValueError:
            raise typer.BadParameter(
                f"{option} must be an address written with {separator!r}, not {address!r}"
            ) from None
    try:
        operator_key = parse_operator_key(os.environ.get("OPERATOR_KEY") or "0")
    except ValueError as error:
        raise typer.BadParameter(f"OPERATOR_KEY is wrong: {error}") from None
    board = BOARDS[name]
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    module, _, function = board.maker.partition(":")
    try:
        report = getattr(importlib.import_module(module), function)(
            board, folder, mac=mac, ip=ip, operator_key=operator_key
        )
    except RuntimeError as error:
        console.print(f"{name}: {error}", highlight=False, markup=False)
        sys.exit(1)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    for table in tables(report):
        console.print(table)
    if unmet := verdict(report):
        console.print(f"{name}: {unmet}", highlight=False)
        sys.exit(1)
    console.print(f"{name}: timing is met; {(folder / report['bitstream']).relative_to(BUILD.parent)}", highlight=False)


if __name__ == "__main__":
    typer.run(main)

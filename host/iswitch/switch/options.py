"""What the command lines of switches on this machine share: their options, files and errors."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

__all__ = [
    "OUTPUT",
    "PORTS",
    "SWITCH",
    "BindOption",
    "ElementsOption",
    "JobsOption",
    "MembersOption",
    "ReadyFileOption",
    "SummaryOption",
    "UdpBaseOption",
    "WindowOption",
    "fail",
    "option",
    "write_json",
]

SWITCH, PORTS, OUTPUT = "The switch", "Its ports", "Running"
"""Panels of the help text."""


def option(*names: str, panel: str, metavar: str, help: str, **settings: Any) -> Any:
    """Return an option of typer, in a panel of the help text."""
    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, help=help, **settings)


MembersOption = Annotated[int, option(panel=SWITCH, metavar="N", help="Workers that a job can have.")]
JobsOption = Annotated[int, option(panel=SWITCH, metavar="N", help="Jobs at the same time.")]
WindowOption = Annotated[int, option(panel=SWITCH, metavar="N", help="Segments that a worker can have in flight.")]
ElementsOption = Annotated[int, option(panel=SWITCH, metavar="N", help="Most elements in a segment.")]
BindOption = Annotated[str, option(panel=PORTS, metavar="HOST", help="IPv4 address at which the sockets listen.")]
UdpBaseOption = Annotated[
    int,
    option(
        panel=PORTS,
        metavar="PORT",
        min=0,
        max=65535,
        help="UDP port of port 0; the other ports follow. 0: any free ones.",
    ),
]
ReadyFileOption = Annotated[
    Path | None,
    option(
        panel=OUTPUT, metavar="FILE", help="Write the addresses of the ports as JSON, as soon as the sockets are open."
    ),
]
SummaryOption = Annotated[
    Path | None, option(panel=OUTPUT, metavar="FILE", help="Write the counters as JSON at the end.")
]


def fail(console: Console, error: Exception) -> NoReturn:
    """Print a sentence, without the number of an OSError, and exit."""
    sentence = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.filename:
        sentence = f"{error.filename}: {sentence}"
    console.print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(2) from error


def write_json(console: Console, path: Path, value: object) -> None:
    """Write a file in one step, so that a program that waits for it never reads half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(value, indent=1) + "\n")
        os.replace(part, path)
    except OSError as error:
        fail(console, error)

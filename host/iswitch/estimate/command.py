"""The command `iswitch estimate`: times of servers, rings and the switch for a user's own cluster."""

import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.costs import Costs, describe_costs
from iswitch.estimate.setting import Phases, Setting
from iswitch.estimate.systems import Estimate, estimate, reservation, verdict

__all__ = ["costs_of", "estimate_cluster", "parse_size"]

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `6.41MB`, rounded up to whole float32 elements.

    Raises
    ------
    ValueError
        If the text is no size.
    """
    match = re.fullmatch(r"([0-9]*\.?[0-9]+) ?([A-Za-z]*)", text.strip())
    if not match or match[2].upper() not in UNITS:
        raise ValueError(f"--size must be a number with B, KB, MB, GB, KiB, MiB or GiB, such as 6.41MB, not {text!r}")
    number = float(match[1])
    if number > 1e18:
        raise ValueError(f"--size must be at most 10^18, not {match[1]!r}")
    size = round(number * UNITS[match[2].upper()])
    if not size:
        raise ValueError(f"--size must be above 0, not {text!r}")
    return -(-size // 4) * 4


def costs_of(given: list[str], file: Path | None, default: Costs) -> Costs:
    """Return costs from a file and from options NAME=VALUE, which go before it.

    Raises
    ------
    ValueError
        If one of them is wrong.
    """
    values: dict[str, float] = {field.name: getattr(default, field.name) for field in fields(default)}
    if file is not None:
        try:
            read = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(f"{file} cannot be read as JSON: {error}") from error
        if not isinstance(read, dict):
            raise ValueError(f"{file} must hold an object of costs by name")
        values |= read
    for each in given:
        name, equals, value = each.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            raise ValueError(f"--cost must be NAME=NUMBER, such as card_us=5, not {each!r}") from None
    try:
        return Costs.from_dict(values)
    except TypeError as error:
        raise ValueError(f"costs must be numbers: {error}") from error


def table_of(found: Estimate) -> Table:
    """Return a table of the systems."""
    table = Table(
        "system", *(name.removesuffix("_s") for name in Phases._fields), "total ms", "communication", "switch faster by"
    )
    for name, phases in found.phases.items():
        cells = (f"{1e3 * seconds:.3f}" for seconds in (*phases, phases.total_s))
        table.add_row(name, *cells, f"{phases.share:.1%}", f"{found.ratio(name):.2f}")
    for name, seconds in found.asynchronous_s.items():
        table.add_row(name, *[""] * len(Phases._fields), f"{1e3 * seconds:.3f}", "", "")
    return table


NO_CALL = "The time of a call of the iswitch driver is not counted; with small gradients it decides."


def _fail(error: Exception) -> NoReturn:
    print(error, file=sys.stderr)
    raise typer.Exit(1) from error


def estimate_cluster(
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Size of the gradient, such as 6.41MB.")],
    workers: Annotated[int, typer.Option("--workers", help="Number of workers.")] = 4,
    rate: Annotated[float, typer.Option("--rate", metavar="GBPS", help="Rate of each cable.")] = 10.0,
    compute_ms: Annotated[
        float, typer.Option("--compute-ms", help="Milliseconds in which a worker computes a gradient.")
    ] = 0.0,
    rack: Annotated[
        int | None, typer.Option("--rack", help="Workers below one switch, in a tree of two levels. Default: all.")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", metavar="NAME=VALUE", help="A cost of your hosts or switch. May be repeated."),
    ] = None,
    costs_file: Annotated[
        Path | None, typer.Option("--costs", metavar="FILE", help="Costs by name, in JSON; --cost goes before it.")
    ] = None,
    show_costs: Annotated[bool, typer.Option("--show-costs", help="Also list the costs and their sources.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Estimate an iteration with parameter servers, ring, tree and the switch. Nothing is measured.

    The last column is how many times as fast as that system the switch is.
    """
    try:
        size_bytes = parse_size(size)
        if size_bytes < 4 * workers:
            raise ValueError(
                f"--size must be at least 4 bytes for each of the {workers} workers, not {size!r}: is a unit "
                "missing, as in 6.41MB?"
            )
        setting = Setting(
            size_bytes=size_bytes,
            workers=workers,
            compute_s=compute_ms / 1e3,
            rate_bps=rate * 1e9,
            rack=rack,
            costs=costs_of(cost or [], costs_file, Costs()),
        )
        found = estimate(setting)
    except ValueError as error:
        _fail(error)
    if as_json:
        rows = {name: phases._asdict() | {"total_s": phases.total_s} for name, phases in found.phases.items()}
        found_all = {"systems": rows, "asynchronous_s": found.asynchronous_s, "reservation": reservation(setting)}
        print(json.dumps(found_all, indent=2))
        return
    console = Console(width=max(110, Console().width), highlight=False)
    console.print(table_of(found))
    console.print(verdict(found), soft_wrap=True)
    if (why := reservation(setting)) is not None:
        console.print(why, soft_wrap=True)
    if not setting.costs.udp_call_us:
        console.print(NO_CALL, soft_wrap=True)
    if show_costs:
        for name, value, source in describe_costs(setting.costs):
            is_given = value != getattr(Costs(), name)
            console.print(f"{name} {value:g}: {'given' if is_given else source}", soft_wrap=True)

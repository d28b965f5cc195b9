"""The options of `iswitch plan`. The planner is imported when the command runs, because its packages load slowly."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["plan"]


def plan(
    topology: Annotated[
        Path, typer.Argument(metavar="FILE", help="Description of the fabric: YAML, node-link .json or .graphml.")
    ],
    kind: Annotated[
        str,
        typer.Option(
            metavar="level|tree|levels|trees",
            help="Plan to configure. level: one tree in which one switch sums each gradient before the root. "
            "tree: one tree in which switches also sum partial sums. levels, trees: several such trees.",
        ),
    ] = "tree",
    removals: Annotated[
        list[str] | None,
        typer.Option(
            "--lose", metavar="LINK", help="Plan without this cable (L1, or S1-S3) or switch. May be repeated."
        ),
    ] = None,
    upgrade: Annotated[
        int, typer.Option(metavar="K", min=0, help="Find the K switches that should aggregate first.")
    ] = 0,
    upgrade_gbps: Annotated[
        float | None,
        typer.Option(
            metavar="GBPS",
            min=0.001,
            help="Capacity of the upgraded switches (default: that of the best switch in the file).",
        ),
    ] = None,
    reservations: Annotated[
        list[str] | None,
        typer.Option(
            "--reserve",
            metavar="LINK=GBPS",
            help="Reserve bandwidth of a cable per direction, for other traffic. May be repeated.",
        ),
    ] = None,
    return_path: Annotated[
        str | None,
        typer.Option(
            metavar="multicast|unicast|none", help="How results return to the workers (default: as in the file)."
        ),
    ] = None,
    max_trees: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Most trees of a plan (default: as in the file, or any number)."),
    ] = None,
    max_slots: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Most slots that the trees may reserve at any switch (default: as in the file, or any number).",
        ),
    ] = None,
    adjacent: Annotated[
        bool,
        typer.Option("--adjacent", help="Let each switch sum only its neighbours, as the emulated fabric requires."),
    ] = False,
    time_s: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="SECONDS",
            min=0.1,
            help="Time limit of the command. A plan that is not proved optimal by then has an upper bound. "
            "Ctrl-C ends the search earlier.",
        ),
    ] = 60.0,
    only: Annotated[bool, typer.Option("--only", help="Do not compare with other schemes.")] = False,
    with_seconds: Annotated[bool, typer.Option("--times", help="Print the seconds that each scheme took.")] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the plan as SVG.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the configuration of each switch and worker as JSON.")
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="An earlier file of --config: list what changes, and increase the epoch if anything does.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The running plan, as --json has printed it: change as few switches as possible, and print what that "
            "costs.",
        ),
    ] = None,
    keep_within: Annotated[
        float,
        typer.Option(
            metavar="PERCENT", min=0, max=100, help="With --keep: how much slower than the best plan the plan may be."
        ),
    ] = 5.0,
    scale: Annotated[
        float,
        typer.Option(
            metavar="FACTOR", min=1e-9, help="Multiply the speeds of cables by this in the arguments for the emulator."
        ),
    ] = 1.0,
    topology_json: Annotated[
        Path | None, typer.Option("--topology", metavar="FILE", help="Write the topology as node-link JSON.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the plan with its paths and loads, and the table's rows, as one JSON object, for programs.",
        ),
    ] = False,
) -> None:
    """Plan which switch sums the gradients of which workers, and over which cables, so that the slowest worker is as
    fast as possible.

    If the file has several jobs, each gets one tree (--kind level or tree), at weighted max-min fair rates.

    The exit code is 1 if there is no plan.
    """
    from iswitch.plan.request import PlanRequest
    from iswitch.plan.run import run_plan

    run_plan(
        PlanRequest(
            topology=topology,
            kind=kind,
            remove=removals or (),
            upgrade=upgrade,
            upgrade_gbps=upgrade_gbps,
            reserve=reservations or (),
            return_path=return_path,
            max_trees=max_trees,
            max_slots=max_slots,
            adjacent=adjacent,
            time_s=time_s,
            only=only,
            with_seconds=with_seconds,
            svg=svg,
            config=config,
            previous=previous,
            keep=keep,
            keep_within=keep_within / 100,
            scale=scale,
            topology_json=topology_json,
            as_json=as_json,
        )
    )

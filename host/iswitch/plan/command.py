"""The options of `iswitch plan`. What takes long to load is loaded when it is called."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["plan"]


def plan(
    topology: Annotated[Path, typer.Argument(metavar="FILE", help="The fabric: YAML, node-link .json or .graphml.")],
    kind: Annotated[str, typer.Option(help="What is to be configured: level (one tree, gradients summed once before the root), tree (summed again), "
                                           "levels or trees (several of them).")] = "tree",
    losing: Annotated[list[str] | None, typer.Option(
        "--lose", metavar="LINK", help="Without this cable (L1, or S1-S3) or switch; may be repeated.")] = None,
    upgrade: Annotated[int, typer.Option(metavar="K", min=0, help="Find the K switches that are best made to aggregate.")] = 0,
    upgrade_gbps: Annotated[float | None, typer.Option(metavar="GBPS", min=0.001, help="What they can sum then; else as the best there is.")] = None,
    reserving: Annotated[list[str] | None, typer.Option(
        "--reserve", metavar="LINK=GBPS", help="For other traffic, each way; may be repeated.")] = None,
    return_path: Annotated[str | None, typer.Option(metavar="multicast|unicast|none", help="How results come back, if not as the file says.")] = None,
    adjacent: Annotated[bool, typer.Option("--adjacent", help="Members are neighbours of who sums them, as the emulated fabric needs it.")] = False,
    limit: Annotated[float, typer.Option("--seconds", min=0.1, help="For each scheme; what is proved until then is said.")] = 60.0,
    only: Annotated[bool, typer.Option("--only", help="This kind alone, no table of all schemes.")] = False,
    times: Annotated[bool, typer.Option("--times", help="Seconds that each scheme took to be found and proved.")] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the plan.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what each switch and worker is to be told (JSON).")] = None,
    previous: Annotated[Path | None, typer.Option(metavar="FILE", help="Such a file of before: say what changes, and count the epoch up.")] = None,
    scale: Annotated[float, typer.Option(min=1e-9, help="Times the rates of cables, for the emulator's arguments in the configuration.")] = 1.0,
    expanded: Annotated[Path | None, typer.Option("--topology", metavar="FILE", help="Write the topology as node-link JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The plan with its ways and loads as one JSON object, for programs.")] = False,
) -> None:
    """Plan which switch sums whose gradients, over which cables, so that all workers are as fast as can be. Exit code 1 if nothing can be planned."""
    from iswitch.plan.present import Asked, present

    present(Asked(topology=topology, kind=kind, lose=losing or (), upgrade=upgrade, upgrade_gbps=upgrade_gbps, reserve=reserving or (),
                  return_path=return_path, adjacent=adjacent, seconds=limit, only=only, times=times, svg=svg, config=config, previous=previous,
                  scale=scale, expanded=expanded, as_json=as_json))

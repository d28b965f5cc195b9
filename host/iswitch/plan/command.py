"""`iswitch plan`: who sums whose gradients, at what rate, what binds, and what each switch is to be told."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from iswitch.plan.check import examine
from iswitch.plan.compare import KINDS, Row, baselines, plan_of, plans
from iswitch.plan.configuration import configuration, renewed
from iswitch.plan.exchange import node_link, to_json
from iswitch.plan.picture import picture
from iswitch.plan.reading import read
from iswitch.plan.report import binds, gbps, iteration, prices, sums_of
from iswitch.plan.topology import Topology, TopologyError
from iswitch.plan.tree import Plan
from iswitch.plan.whatif import lose, reserve, upgrade_of

__all__ = ["plan"]

out, err = Console(), Console(stderr=True)


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
    adjacent: Annotated[bool, typer.Option("--adjacent", help="Members are neighbours of who sums them: what the emulated fabric can run.")] = False,
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
    try:
        if kind not in KINDS:
            raise ValueError(f"--kind must be one of {', '.join(KINDS)}, not {kind!r}")
        given = read(topology)
        if return_path:
            given = given.changed(return_path=return_path)
        changed, words = _changed(given, losing or [], reserving or [])
        wanted = upgrade_of(changed, upgrade, upgrade_gbps) if upgrade else None
        found = plan_of(changed, kind, time_s=limit, adjacent=adjacent, upgrade=wanted)
        if wanted and found.upgraded:
            changed = changed.with_capacity(found.upgraded)
            words.append(f"with {' and '.join(found.upgraded)} aggregating {gbps(wanted.capacity_gbps)} Gb/s")
        elif wanted:
            words.append("with no switch upgraded, since none would help")
        before = plan_of(given, kind, time_s=limit, adjacent=adjacent) if words else found
        if complaints := examine(node_link(changed), found.json(), levels=1 if kind.startswith("level") else None)[1]:
            raise RuntimeError(f"the plan does not hold: {complaints}")
        made = configuration(changed, found, scale=scale)
        lines: list[str] = []
        if previous:
            made, lines = renewed(json.loads(previous.read_text(encoding="utf-8")), made)
        for path, text in ((expanded, to_json(changed)), (svg, picture(changed, found)), (config, json.dumps(made, indent=1) + "\n")):
            if path:
                path.write_text(text, encoding="utf-8")
    except (TopologyError, ValueError, KeyError, OSError) as error:
        err.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps(_described(changed, found, made), indent=1))
        return
    _head(topology, changed)
    if words:
        share = found.rate_gbps / before.rate_gbps - 1
        out.print(f"{'; '.join(words)}: {gbps(before.rate_gbps)} -> {gbps(found.rate_gbps)} Gb/s ({share:+.1%})", highlight=False)
    if not only:
        _table(changed, limit, adjacent, times)
    _told(changed, found, times)
    _fabric(made, lines, previous)


def _changed(topology: Topology, losing: list[str], reserving: list[str]) -> tuple[Topology, list[str]]:
    words = []
    for name in losing:
        topology = lose(topology, name)
        words.append(f"without {name}")
    for name in reserving:
        topology = reserve(topology, name)
        words.append(f"with {name.replace('=', ' less ')} Gb/s")
    return topology, words


def _described(topology: Topology, found: Plan, made: dict[str, Any]) -> dict[str, Any]:
    return found.json() | {"loads_gbps": examine(node_link(topology), found.json())[0], "gap": found.gap if found.gap < float("inf") else None,
                           "binds": [{"resource": name, "price": price} for name, price in prices(topology, found)],
                           "seconds": found.seconds, "upgraded": dict(found.upgraded), "configuration": made}


def _head(path: Path, topology: Topology) -> None:
    job = topology.job
    end = f"sums end at {topology.ps}" if topology.ps else "sums end at a switch"
    out.print(f"{path.name}: {len(topology.workers)} workers, {len(topology.switches)} switches, {len(topology.aggregators)} of them aggregate; "
              f"{end}; return path {job.return_path}", highlight=False, soft_wrap=True)
    out.print(f"for each Gb/s of gradient a worker's stream is {gbps(job.gradient_size)} Gb/s, a switch's sum {gbps(job.partial_size)}",
              highlight=False)


def _table(topology: Topology, limit: float, adjacent: bool, times: bool) -> None:
    table = Table("scheme", "Gb/s", "at most", "trees", *(["s"] if times else []), "full")
    rows = [*baselines(topology, time_s=limit), *plans(topology, time_s=limit, adjacent=adjacent)]
    for row in rows:
        table.add_row(row.scheme, *_cells(row, times))
    out.print(table)
    for row in rows:
        if row.plan and row.plan.note:
            out.print(f"{row.scheme}: {row.plan.note}", highlight=False)
    if not topology.ps and rows[0].topology.ps:
        out.print(f"the first four schemes sum at {rows[0].topology.ps} what is left to sum", highlight=False)


def _cells(row: Row, times: bool) -> list[str]:
    if row.plan is None:
        return ["none", "", "", *([""] if times else []), row.why]
    plan = row.plan
    bound = "" if plan.bound_gbps == float("inf") else "proved" if plan.gap < 1e-6 else f"{gbps(plan.bound_gbps)} ({plan.gap:+.1%})"
    return [gbps(plan.rate_gbps), bound, str(len(plan.trees)), *([f"{plan.seconds:.2f}"] if times else []), binds(row.topology, plan)]


def _told(topology: Topology, found: Plan, times: bool) -> None:
    seconds = f", after {found.seconds:.2f} s" if times else ""
    proof = "no faster one exists" if found.gap < 1e-6 else f"none is faster than {gbps(found.bound_gbps)}"
    out.print(f"\n{found.scheme}: {gbps(found.rate_gbps)} Gb/s from each worker; {proof}{seconds}", style="bold", highlight=False)
    if (took := iteration(topology, found)) is not None:
        out.print(f"a gradient of {topology.job.gradient_bytes:,} bytes takes {took * 1e3:.3f} ms", highlight=False)
    for number, tree in enumerate(found.trees):
        share = f"tree {number}: {tree.rate_gbps / found.rate_gbps:.1%}" if len(found.trees) > 1 else "tree"
        table = Table(share, "sums", "goes by", "takes Gb/s", "of")
        for row in sums_of(topology, tree, found.trees):
            table.add_row(*row)
        out.print(table)
    priced = prices(topology, found)
    for name, price in priced:
        if price:
            out.print(f"full, and worth {gbps(price)} Gb/s for each Gb/s more: {name}", highlight=False, soft_wrap=True)
    if idle := ", ".join(name for name, price in priced if not price):
        out.print(f"full, but more of one alone helps nothing: {idle}", highlight=False, soft_wrap=True)


def _fabric(made: dict[str, Any], lines: list[str], previous: Path | None) -> None:
    if previous:
        out.print(f"\nepoch {made['epoch']}: {len(lines) or 'no'} changes", style="bold", highlight=False)
        for line in lines:
            out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if made["emulator"]["arguments"]:
        out.print(f"\npython -m sim.emulator {' '.join(made['emulator']['arguments'])}", highlight=False, markup=False, soft_wrap=True)
    else:
        reasons = made["emulator"]["reasons"]
        out.print(f"\nthe emulated fabric cannot run this: {reasons[0]}{f', and {len(reasons) - 1} more reasons' if len(reasons) > 1 else ''}",
                  highlight=False, markup=False, soft_wrap=True)

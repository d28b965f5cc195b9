"""Plan a fabric and print the plan: the work of `iswitch plan`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from iswitch.plan.check import examine
from iswitch.plan.output.configuration import configuration, renewed
from iswitch.plan.output.picture import picture
from iswitch.plan.output.words import binds, gbps, iteration, prices, sums_of
from iswitch.plan.schemes import KINDS, Row, baselines, plan_of, plans
from iswitch.plan.sensitivity import lose, reserve, upgrade_of
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.errors import error_text
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.graph_file import node_link, to_json
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["Asked", "present"]

out, err = Console(markup=False, emoji=False), Console(stderr=True)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options, as `command.py` explains them."""

    topology: Path
    kind: str
    lose: Sequence[str]
    upgrade: int
    upgrade_gbps: float | None
    reserve: Sequence[str]
    return_path: str | None
    adjacent: bool
    seconds: float
    only: bool
    times: bool
    svg: Path | None
    config: Path | None
    previous: Path | None
    scale: float
    expanded: Path | None
    as_json: bool


def present(asked: Asked) -> None:
    """Plans, writes the files, prints. typer.Exit(1) with a sentence if nothing can be planned."""
    try:
        if asked.kind not in KINDS:
            raise ValueError(f"--kind must be one of {', '.join(KINDS)}, not {asked.kind!r}")
        if asked.upgrade_gbps and not asked.upgrade:
            raise ValueError("--upgrade-gbps is the capacity of the switches of --upgrade K: pass --upgrade, too")
        given = read_topology(asked.topology)
        if asked.return_path:
            given = given.with_job(return_path=asked.return_path)
        changed, words = _changed(given, asked.lose, asked.reserve)
        wanted = upgrade_of(changed, asked.upgrade, asked.upgrade_gbps) if asked.upgrade else None
        found = plan_of(changed, asked.kind, time_s=asked.seconds, adjacent=asked.adjacent, upgrade=wanted)
        if wanted and found.upgraded:
            changed = changed.with_capacity(found.upgraded)
            words.append(f"with {' and '.join(found.upgraded)} aggregating {gbps(wanted.capacity_gbps)} Gb/s")
        elif wanted:
            words.append(
                f"with no switch upgraded, since none would help{' one tree' if asked.kind.endswith('s') else ''}"
            )
        before = plan_of(given, asked.kind, time_s=asked.seconds, adjacent=asked.adjacent) if words else found
        if complaints := examine(
            node_link(changed), found.json(), levels=1 if asked.kind.startswith("level") else None
        )[1]:
            raise RuntimeError(f"the plan does not hold: {complaints}")
        made = configuration(changed, found, scale=asked.scale, wired=given)
        lines: list[str] = []
        if asked.previous:
            made, lines = renewed(_earlier(asked.previous), made)
        texts = (to_json(changed), picture(changed, found), json.dumps(made, indent=1) + "\n")
        for path, text in zip((asked.expanded, asked.svg, asked.config), texts):
            if path:
                path.write_text(text, encoding="utf-8")
    except (TopologyError, ValueError, KeyError, OSError) as error:
        err.print(error_text(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    if asked.as_json:
        print(json.dumps(_described(changed, found, made), indent=1))
        return
    _head(asked.topology, changed)
    if words:
        share = found.rate_gbps / before.rate_gbps - 1
        out.print(
            f"{'; '.join(words)}: {gbps(before.rate_gbps)} -> {gbps(found.rate_gbps)} Gb/s ({share:+.1%})",
            highlight=False,
        )
    if not asked.only:
        _table(changed, asked)
    _told(changed, found, asked.times)
    _fabric(made, lines, asked.previous)


def _earlier(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"epoch", "switches", "workers"} <= found.keys():
        raise ValueError(f"{path} is not a file that --config has written")
    return found


def _changed(topology: Topology, losing: Sequence[str], reserving: Sequence[str]) -> tuple[Topology, list[str]]:
    words = []
    for name in losing:
        topology = lose(topology, name)
        words.append(f"without {name}")
    for name in reserving:
        topology = reserve(topology, name)
        words.append(f"with {name.replace('=', ' less ')} Gb/s")
    return topology, words


def _described(topology: Topology, found: Plan, made: dict[str, Any]) -> dict[str, Any]:
    return found.json() | {
        "loads_gbps": examine(node_link(topology), found.json())[0],
        "gap": found.gap if found.gap < float("inf") else None,
        "binds": [{"resource": name, "price": price} for name, price in prices(topology, found)],
        "seconds": found.seconds,
        "upgraded": dict(found.upgraded),
        "configuration": made,
    }


def _head(path: Path, topology: Topology) -> None:
    job = topology.job
    end = f"sums end at {topology.ps}" if topology.ps else "sums end at a switch"
    out.print(
        f"{path.name}: {len(topology.workers)} workers, {len(topology.switches)} switches, {len(topology.aggregators)} of them aggregate; "
        f"{end}; return path {job.return_path}",
        highlight=False,
        soft_wrap=True,
    )
    out.print(
        f"with headers, 1 Gb/s of gradient takes {gbps(job.gradient_size)} Gb/s from a worker, {gbps(job.partial_size)} as a switch's "
        "partial sum",
        highlight=False,
        soft_wrap=True,
    )


def _table(topology: Topology, asked: Asked) -> None:
    table = Table("scheme", "Gb/s", "bound", "trees", *(["s"] if asked.times else []), "bottlenecks")
    rows = [*baselines(topology, time_s=asked.seconds), *plans(topology, time_s=asked.seconds, adjacent=asked.adjacent)]
    for row in rows:
        table.add_row(row.scheme, *_cells(row, asked.times))
    out.print(table)
    for row in rows:
        if row.plan and row.plan.note:
            out.print(f"{row.scheme}: {row.plan.note}", highlight=False)
    if not topology.ps and rows[0].topology.ps:
        out.print(f"the first four schemes use {rows[0].topology.ps} as their parameter server", highlight=False)


def _cells(row: Row, times: bool) -> list[str]:
    if row.plan is None:
        return ["no plan", "", "", *([""] if times else []), row.why]
    plan = row.plan
    bound = (
        ""
        if plan.bound_gbps == float("inf")
        else "proved"
        if plan.gap < 1e-6
        else f"{gbps(plan.bound_gbps)} ({plan.gap:+.1%})"
    )
    return [
        gbps(plan.rate_gbps),
        bound,
        str(len(plan.trees)),
        *([f"{plan.seconds:.2f}"] if times else []),
        binds(row.topology, plan),
    ]


def _told(topology: Topology, found: Plan, times: bool) -> None:
    seconds = f", after {found.seconds:.2f} s" if times else ""
    proof = "proved optimal" if found.gap < 1e-6 else f"no plan exceeds {gbps(found.bound_gbps)} Gb/s"
    out.print(
        f"\n{found.scheme}: {gbps(found.rate_gbps)} Gb/s from each worker; {proof}{seconds}",
        style="bold",
        highlight=False,
    )
    if (took := iteration(topology, found)) is not None:
        out.print(f"a gradient of {topology.job.gradient_bytes:,} bytes takes {took * 1e3:.3f} ms", highlight=False)
    for number, tree in enumerate(found.trees):
        share = f"tree {number}: {tree.rate_gbps / found.rate_gbps:.1%}" if len(found.trees) > 1 else "tree"
        table = Table(share, "sums", "sent via", "load Gb/s", "of")
        for row in sums_of(topology, tree, found.trees):
            table.add_row(*row)
        out.print(table)
    priced = prices(topology, found)
    for name, price in priced:
        if price:
            out.print(
                f"bottleneck, where 1 Gb/s more would gain {gbps(price)} Gb/s: {name}", highlight=False, soft_wrap=True
            )
    if idle := ", ".join(name for name, price in priced if not price):
        out.print(f"bottlenecks, where 1 Gb/s more of one alone gains nothing: {idle}", highlight=False, soft_wrap=True)


def _fabric(made: dict[str, Any], lines: list[str], previous: Path | None) -> None:
    if previous:
        out.print(
            f"\nepoch {made['epoch']}: {len(lines) or 'no'} change{'' if len(lines) == 1 else 's'}",
            style="bold",
            highlight=False,
        )
        for line in lines:
            out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if made["emulator"]["arguments"]:
        out.print(
            f"\npython -m sim.emulator {' '.join(made['emulator']['arguments'])}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    else:
        out.print("\nthe emulated fabric cannot run this plan:", highlight=False)
        for reason in made["emulator"]["reasons"]:
            out.print(f"  {reason}", highlight=False, markup=False, soft_wrap=True)

"""Plan a topology, write the files and print the plan: the work of `iswitch plan`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from iswitch.plan.check import check_plan
from iswitch.plan.console import (
    print_change,
    print_configuration,
    print_error,
    print_plan,
    print_schemes,
    print_topology,
)
from iswitch.plan.output.changes import with_next_epoch
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.output.drawing import draw_svg
from iswitch.plan.output.words import describe_shadow_prices, format_gbps
from iswitch.plan.schemes import KINDS, make_plan, plan_all_kinds, plan_baselines
from iswitch.plan.sensitivity import make_upgrade, remove, reserve
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.errors import error_text
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.graph_file import node_link, to_json
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["PlanRequest", "run_plan"]


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """The options of `iswitch plan`; `command.py` explains them."""

    topology: Path
    kind: str
    remove: Sequence[str]
    upgrade: int
    upgrade_gbps: float | None
    reserve: Sequence[str]
    return_path: str | None
    adjacent: bool
    time_s: float
    only: bool
    with_seconds: bool
    svg: Path | None
    config: Path | None
    previous: Path | None
    scale: float
    topology_json: Path | None
    as_json: bool


def run_plan(request: PlanRequest) -> None:
    """Plan a topology, write the files and print the plan.

    Raises
    ------
    typer.Exit
        With code 1, after a sentence, if there is no plan.
    """
    try:
        if request.kind not in KINDS:
            raise ValueError(f"--kind must be one of {', '.join(KINDS)}, not {request.kind!r}")
        if request.upgrade_gbps and not request.upgrade:
            raise ValueError("--upgrade-gbps is the capacity of the switches of --upgrade K: pass --upgrade, too")
        given = read_topology(request.topology)
        if request.return_path:
            given = given.with_job(return_path=request.return_path)
        topology, changes = _change(given, request.remove, request.reserve)
        upgrade = make_upgrade(topology, request.upgrade, request.upgrade_gbps) if request.upgrade else None
        plan = make_plan(topology, request.kind, time_s=request.time_s, adjacent=request.adjacent, upgrade=upgrade)
        if upgrade and plan.upgraded:
            topology = topology.with_capacity(plan.upgraded)
            changes.append(f"with {' and '.join(plan.upgraded)} aggregating {format_gbps(upgrade.capacity_gbps)} Gb/s")
        elif upgrade:
            one_tree = " one tree" if request.kind.endswith("s") else ""
            changes.append(f"with no switch upgraded, since none would help{one_tree}")
        before = plan
        if changes:
            before = make_plan(given, request.kind, time_s=request.time_s, adjacent=request.adjacent)
        loads = _check(topology, plan, request.kind)
        configuration = make_configuration(topology, plan, scale=request.scale, wired=given)
        differences = None
        if request.previous:
            configuration, differences = with_next_epoch(_read_configuration(request.previous), configuration)
        files = (
            (request.topology_json, to_json(topology)),
            (request.svg, draw_svg(topology, plan)),
            (request.config, json.dumps(configuration, indent=1) + "\n"),
        )
        for path, text in files:
            if path:
                path.write_text(text, encoding="utf-8")
    except (TopologyError, ValueError, KeyError, OSError) as error:
        print_error(error_text(error))
        raise typer.Exit(1) from error
    if request.as_json:
        print(json.dumps(_to_dict(topology, plan, loads, configuration), indent=1))
        return
    print_topology(request.topology, topology)
    if changes:
        print_change(changes, before, plan)
    if not request.only:
        results = [
            *plan_baselines(topology, time_s=request.time_s),
            *plan_all_kinds(topology, time_s=request.time_s, adjacent=request.adjacent),
        ]
        print_schemes(topology, results, request.with_seconds)
    print_plan(topology, plan, request.with_seconds)
    print_configuration(configuration, differences)


def _change(topology: Topology, removals: Sequence[str], reservations: Sequence[str]) -> tuple[Topology, list[str]]:
    """Return the topology with the changes of a sensitivity analysis, and the changes in words."""
    changes = []
    for name in removals:
        topology = remove(topology, name)
        changes.append(f"without {name}")
    for name in reservations:
        topology = reserve(topology, name)
        changes.append(f"with {name.replace('=', ' less ')} Gb/s")
    return topology, changes


def _check(topology: Topology, plan: Plan, kind: str) -> dict[str, float]:
    """Check a plan independently of what made it, and return the load of everything in Gb/s."""
    loads, violations = check_plan(node_link(topology), plan.to_dict(), levels=1 if kind.startswith("level") else None)
    if violations:
        raise RuntimeError(f"the plan does not hold: {violations}")
    return loads


def _read_configuration(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"epoch", "switches", "workers"} <= found.keys():
        raise ValueError(f"{path} is not a file that --config has written")
    return found


def _to_dict(topology: Topology, plan: Plan, loads: dict[str, float], configuration: dict[str, Any]) -> dict[str, Any]:
    """Return everything about a plan, for `--json`."""
    prices = describe_shadow_prices(topology, plan)
    return plan.to_dict() | {
        "loads_gbps": loads,
        "gap": plan.gap if plan.gap < float("inf") else None,
        "bottlenecks": [{"resource": name, "price": price} for name, price in prices],
        "seconds": plan.seconds,
        "upgraded": dict(plan.upgraded),
        "configuration": configuration,
    }

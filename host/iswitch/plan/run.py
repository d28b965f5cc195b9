"""Plan a topology, write the files and print the plan: the work of `iswitch plan`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import typer

from iswitch.plan.check import check_plan
from iswitch.plan.console import (
    print_change,
    print_configuration,
    print_error,
    print_kept,
    print_plan,
    print_schemes,
    print_topology,
)
from iswitch.plan.json_output import plan_to_dict
from iswitch.plan.keeping import KeptPlan, keep_running, read_running_plan
from iswitch.plan.output.changes import read_configuration, with_next_epoch
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.output.drawing import draw_svg
from iswitch.plan.output.words import format_gbps
from iswitch.plan.progress import showing_progress
from iswitch.plan.request import PlanRequest
from iswitch.plan.run_jobs import run_jobs_plan
from iswitch.plan.schemes import BASELINES_SHARE, KINDS, SchemeResult, make_plan, plan_all_kinds, plan_baselines
from iswitch.plan.sensitivity import make_upgrade, remove, reserve
from iswitch.plan.solver.clock import Clock, reporting, stopping_on_interrupt
from iswitch.plan.solver.tree import Plan, Tree
from iswitch.plan.topology.errors import error_text
from iswitch.plan.topology.files import read_fabric
from iswitch.plan.topology.graph_file import node_link, to_json
from iswitch.plan.topology.shared_fabric import SharedFabric
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["run_plan"]

KEEP_SHARE = 0.3
"""The part of the time for a plan that keeps most of a running one."""
BEFORE_SHARE = 0.3
"""The part of the time for the plan without changes, which is compared with that with changes."""


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
        if request.keep and request.upgrade:
            raise ValueError("--keep changes as few switches as possible: leave --upgrade out")
        given = read_fabric(request.topology)
        if isinstance(given, SharedFabric):
            run_jobs_plan(request, given)
            return
        if request.settings:
            given = given.with_job(**request.settings)
        topology, changes = _change(given, request.remove, request.reserve)
        running = read_running_plan(request.keep, topology) if request.keep else ()
        with stopping_on_interrupt(), showing_progress(request.time_s) as progress, reporting(progress):
            found = _plan(request, given, topology, changes, running)
        topology, plan, before, changes, results, kept = found
        loads = _check(topology, plan, request.kind)
        configuration = make_configuration(topology, plan, scale=request.scale, wired=given)
        differences = None
        if request.previous:
            configuration, differences = with_next_epoch(read_configuration(request.previous), configuration)
        files = (
            (request.topology_json, lambda: to_json(topology)),
            (request.svg, lambda: draw_svg(topology, plan)),
            (request.config, lambda: json.dumps(configuration, indent=1) + "\n"),
        )
        for path, make_text in files:
            if path:
                path.write_text(make_text(), encoding="utf-8")
    except (TopologyError, ValueError, KeyError, OSError) as error:
        print_error(error_text(error))
        raise typer.Exit(1) from error
    if request.as_json:
        found_json = plan_to_dict(topology, plan, loads=loads, configuration=configuration, results=results, kept=kept)
        print(json.dumps(found_json, indent=1))
        return
    print_topology(request.topology, topology)
    if changes:
        print_change(changes, before, plan)
    if results:
        print_schemes(topology, results, request.with_seconds)
    if kept:
        print_kept(kept)
    print_plan(topology, plan, request.with_seconds)
    print_configuration(configuration, differences)


class _Found(NamedTuple):
    """The topology with its upgrades, the plan, that without changes, the changes in words, the table's rows, and what
    a plan that keeps most of a running one costs."""

    topology: Topology
    plan: Plan
    before: Plan
    changes: list[str]
    results: list[SchemeResult]
    kept: KeptPlan | None


def _plan(
    request: PlanRequest, given: Topology, topology: Topology, changes: list[str], running: Sequence[Tree]
) -> _Found:
    """Make all plans within the time limit.

    The plan of the kind that is asked for starts from the trees of all rows before it in the table. If the table is
    not asked for, that plan has all of the time; but a part is for a plan that keeps most of a running one.
    """
    whole, kind, adjacent = Clock(request.time_s), request.kind, request.adjacent
    clock = whole.part(1 - KEEP_SHARE) if running else whole
    with_table = not request.only
    before: Plan | None = None
    if changes or request.upgrade:
        before = make_plan(given, kind, time_s=clock.part(BEFORE_SHARE).time_s, adjacent=adjacent)
    results: list[SchemeResult] = []
    start: list[Tree] = []
    plan: Plan | None = None
    if request.upgrade:
        upgrade = make_upgrade(topology, request.upgrade, request.upgrade_gbps)
        part = clock.part(0.5 if with_table else 1.0).time_s
        plan = make_plan(topology, kind, time_s=part, adjacent=adjacent, upgrade=upgrade)
        if plan.upgraded:
            topology = topology.with_capacity(plan.upgraded)
            changes = [
                *changes,
                f"with {' and '.join(plan.upgraded)} aggregating {format_gbps(upgrade.capacity_gbps)} Gb/s",
            ]
        else:
            one_tree = " one tree" if kind.endswith("s") else ""
            changes = [*changes, f"with no switch upgraded, since none would help{one_tree}"]
        start += plan.trees
    if with_table:
        results += plan_baselines(topology, time_s=clock.part(BASELINES_SHARE).time_s)
        start += [tree for row in results for tree in row.known_trees(topology)]
        kinds = plan_all_kinds(topology, time_s=clock.part(1.0).time_s, adjacent=adjacent, start=start, preferred=kind)
        rows = dict(zip(KINDS, kinds))
        results += rows.values()
        row = rows[kind]
        if row.plan is None:
            raise TopologyError(row.reason)
        plan = replace(row.plan, upgraded=plan.upgraded if plan else {})
    elif plan is None:
        plan = make_plan(topology, kind, time_s=clock.part(1.0).time_s, adjacent=adjacent)
    kept: KeptPlan | None = None
    if running:
        part = whole.part(1.0).time_s
        kept = keep_running(topology, kind, running, plan, within=request.keep_within, time_s=part, adjacent=adjacent)
    return _Found(topology, kept.chosen.plan if kept else plan, before or plan, changes, results, kept)


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

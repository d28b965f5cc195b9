"""Plan several jobs and print the plan: the work of `iswitch plan` for a file with `jobs`."""

import json
from functools import partial

from iswitch.plan.check_jobs import check_jobs
from iswitch.plan.console import print_epoch
from iswitch.plan.jobs_output import jobs_plan_to_dict, print_jobs_plan
from iswitch.plan.output.changes import read_configuration, with_next_epoch
from iswitch.plan.output.jobs_configuration import make_jobs_configuration
from iswitch.plan.progress import showing_progress
from iswitch.plan.request import PlanRequest
from iswitch.plan.sensitivity import remove, reserve
from iswitch.plan.several_jobs import JOBS_KINDS, JobsPlan, plan_jobs
from iswitch.plan.solver.clock import Clock, reporting, stopping_on_interrupt
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.shared_fabric import SharedFabric

__all__ = ["run_jobs_plan"]

BEFORE_SHARE = 0.4
"""The part of the time for the plan without changes, which is compared with that with changes."""


def run_jobs_plan(request: PlanRequest, given: SharedFabric) -> None:
    """Plan the jobs of a fabric and print the plan.

    Raises
    ------
    ValueError
        If an option is for one job only, or the earlier configuration is not one.
    TopologyError
        If a job has no plan.
    """
    _refuse_options_of_one_job(request)
    if request.settings:
        given = given.change(lambda topology: topology.with_job(**request.settings))
    fabric, changes = given, list[str]()
    for name in request.remove:
        fabric = fabric.change(partial(remove, part=name))
        changes.append(f"without {name}")
    for name in request.reserve:
        fabric = fabric.change(partial(reserve, reservation=name))
        changes.append(f"with {name.replace('=', ' less ')} Gb/s")
    clock, before = Clock(request.time_s), None
    with stopping_on_interrupt(), showing_progress(request.time_s) as progress, reporting(progress):
        if changes:
            part = clock.part(BEFORE_SHARE).time_s
            before = plan_jobs(given, request.kind, time_s=part, adjacent=request.adjacent)
        plan = plan_jobs(fabric, request.kind, time_s=clock.part(1.0).time_s, adjacent=request.adjacent)
    loads = _check(fabric, plan, request.kind)
    plans = [each.plan for each in plan.jobs]
    configuration, differences = make_jobs_configuration(fabric.jobs, plans, wired=given), None
    if request.previous:
        configuration, differences = with_next_epoch(read_configuration(request.previous), configuration)
    if request.config:
        request.config.write_text(json.dumps(configuration, indent=1) + "\n", encoding="utf-8")
    if request.as_json:
        print(json.dumps(jobs_plan_to_dict(plan, loads) | {"configuration": configuration}, indent=1))
        return
    print_jobs_plan(request.topology, plan, changes=changes, before=before, with_seconds=request.with_seconds)
    if differences is not None:
        print_epoch(configuration, differences)


def _refuse_options_of_one_job(request: PlanRequest) -> None:
    """Raise ValueError for each option that several jobs do not have."""
    if request.kind not in JOBS_KINDS:
        raise ValueError(
            f"--kind {request.kind} plans several trees of one job: for several jobs, pass --kind level or --kind tree"
        )
    options = {
        "--upgrade": request.upgrade,
        "--svg": request.svg,
        "--keep": request.keep,
        "--topology": request.topology_json,
    }
    if given := [name for name, value in options.items() if value]:
        raise ValueError(
            f"{' and '.join(given)} can be used for one job only, and {request.topology.name} has several: leave it out"
        )


def _check(fabric: SharedFabric, plan: JobsPlan, kind: str) -> dict[str, float]:
    """Check a plan independently of what made it, and return what its jobs load together."""
    networks = {job.name: node_link(job.topology) for job in fabric.jobs}
    loads, violations = check_jobs(networks, jobs_plan_to_dict(plan), levels=1 if kind == "level" else None)
    if violations:
        raise RuntimeError(f"the plan does not hold: {violations}")
    return loads

"""A plan of several jobs, as text for the terminal and as the JSON object of `iswitch plan --json`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from iswitch.plan.console import PROVED, out
from iswitch.plan.output.words import describe_sums, format_gbps, iteration_seconds, join_names, join_resources
from iswitch.plan.several_jobs import JobPlan, JobsPlan
from iswitch.plan.solver.tree import Plan, Resource, total_loads

__all__ = ["jobs_plan_to_dict", "print_jobs_plan"]


def jobs_plan_to_dict(plan: JobsPlan, loads: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return everything about a plan of several jobs, for `--json`.

    Parameters
    ----------
    plan : JobsPlan
        The plan.
    loads : mapping of str to float, optional
        What the jobs load together, as from `check_jobs`.
    """
    return {
        "scheme": plan.scheme,
        "rate_per_weight": plan.least_gbps,
        "bound": plan.bound,
        "rates_proved": plan.proved,
        "proved": plan.is_proved,
        "seconds": plan.seconds,
        "jobs": [_job_to_dict(plan, each) for each in plan.jobs],
        "loads": dict(loads or {}),
    }


def _job_to_dict(plan: JobsPlan, each: JobPlan) -> dict[str, Any]:
    """Return the plan of a job. Its trees have the form of the trees of a plan of one job."""
    job = each.job
    return each.plan.to_dict() | {
        "name": job.name,
        "weight": job.weight,
        "rate_per_weight": each.normalised_gbps,
        "workers": job.topology.workers,
        "ps": job.topology.ps,
        "settings": job.topology.job.model_dump(exclude_none=True),
        "alone_gbps": each.alone.rate_gbps,
        "limits": [
            {"resource": resource.describe(job.topology), "shared_with": _others(plan, each, resource)}
            for resource in each.limits
        ],
    }


def _others(plan: JobsPlan, each: JobPlan, resource: Resource) -> list[str]:
    """Return the other jobs that use a resource."""
    return [
        other.job.name
        for other in plan.jobs
        if other is not each and resource in total_loads(other.job.topology, (other.tree,))
    ]


def print_jobs_plan(
    path: Path, plan: JobsPlan, *, changes: Sequence[str], before: JobsPlan | None, with_seconds: bool
) -> None:
    """Print the rate of each job, what limits it, and its tree.

    Parameters
    ----------
    path : Path
        The file of the fabric.
    plan : JobsPlan
        The plan.
    changes : sequence of str
        The changes of the fabric, in words.
    before : JobsPlan, optional
        The plan without the changes.
    with_seconds : bool
        Print the time that the plan took.
    """
    topology = plan.jobs[0].job.topology
    workers = sum(len(each.job.topology.workers) for each in plan.jobs)
    counted = lambda count, noun: f"{count} {noun}{'s' * (count != 1)}"
    out.print(
        f"{path.name}: {counted(len(plan.jobs), 'job')}, {counted(workers, 'worker')}, "
        f"{len(topology.switches)} switch{'es' * (len(topology.switches) != 1)}, "
        f"{len(topology.aggregators)} of them aggregate",
        highlight=False,
        soft_wrap=True,
    )
    if changes:
        out.print("; ".join(changes), highlight=False)
    seconds = f", after {plan.seconds:.2f} s" if with_seconds else ""
    out.print(f"\n{plan.scheme}, for each job; {_proof(plan)}{seconds}", style="bold", highlight=False, soft_wrap=True)
    table = Table("job", "workers", "weight", *(["before"] if before else []), "Gb/s", "Gb/s / weight", "alone")
    table.add_column("limited by")
    for number, each in enumerate(plan.jobs):
        table.add_row(
            each.job.name,
            str(len(each.job.topology.workers)),
            f"{each.job.weight:g}",
            *([format_gbps(before.jobs[number].tree.rate_gbps)] if before else []),
            format_gbps(each.tree.rate_gbps),
            format_gbps(each.normalised_gbps),
            _describe_alone(each.alone),
            _describe_limits(plan, each),
        )
    out.print(table)
    load = defaultdict[Resource, float](float)
    for each in plan.jobs:
        for resource, gbps in total_loads(each.job.topology, (each.tree,)).items():
            load[resource] += gbps
    for each in plan.jobs:
        _print_job(each, load)


def _proof(plan: JobsPlan) -> str:
    if plan.is_proved:
        return "proved: no trees give fairer rates"
    if plan.proved:
        return (
            f"proved for the smallest {plan.proved} of {len(plan.jobs)} values of Gb/s / weight; "
            "more --seconds may raise the others"
        )
    least, most = format_gbps(plan.least_gbps), format_gbps(plan.bound)
    return f"each job has at least {least} Gb/s x weight; no trees give every job more than {most}"


def _describe_alone(alone: Plan) -> str:
    """Return the rate of a job alone, and its bound if the rate is not proved."""
    rate = format_gbps(alone.rate_gbps)
    return rate if alone.gap < PROVED else f"{rate} (at most {format_gbps(alone.bound_gbps)})"


def _describe_limits(plan: JobsPlan, each: JobPlan) -> str:
    """Return what limits a job in words, with the jobs that share it."""
    groups: dict[tuple[str, ...], list[Resource]] = {}
    for resource in each.limits:
        groups.setdefault(tuple(_others(plan, each, resource)), []).append(resource)
    parts = []
    for others, resources in sorted(groups.items(), key=lambda group: -len(group[0])):
        text = join_resources(each.job.topology, resources)
        parts.append(f"{text} (shared with {join_names(others)})" if others else text)
    return "; ".join(parts)


def _print_job(each: JobPlan, load: Mapping[Resource, float]) -> None:
    """Print the tree of a job. Loads are those of all jobs."""
    topology, tree = each.job.topology, each.tree
    out.print(f"\n{each.job.name}: {format_gbps(tree.rate_gbps)} Gb/s from each worker", style="bold", highlight=False)
    if (iteration := iteration_seconds(topology, each.plan)) is not None:
        size = f"a gradient of {topology.job.gradient_bytes:,} bytes"
        out.print(f"{size} takes {iteration * 1e3:.3f} ms", highlight=False)
    table = Table("tree", "sums", "sent via", "load of all jobs, Gb/s", "of")
    for row in describe_sums(topology, tree, (tree,), load):
        table.add_row(*row)
    out.print(table)

"""Print a plan to the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from iswitch.plan.keeping import KeptPlan
from iswitch.plan.output.words import (
    describe_bottlenecks,
    describe_shadow_prices,
    describe_sums,
    format_gbps,
    iteration_seconds,
    join_names,
)
from iswitch.plan.schemes import SchemeResult
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology

__all__ = [
    "PROVED",
    "out",
    "print_change",
    "print_configuration",
    "print_epoch",
    "print_error",
    "print_kept",
    "print_plan",
    "print_schemes",
    "print_topology",
]

PROVED = 1e-6
"""Gap below which a plan counts as proved optimal."""

out, err = Console(markup=False, emoji=False), Console(stderr=True)


def print_error(sentence: str) -> None:
    """Print an error of the user."""
    err.print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)


def print_topology(path: Path, topology: Topology) -> None:
    """Print what is planned for: the size of the topology, and how large streams are."""
    job = topology.job
    limits = f"; at most {job.max_trees} tree{'s' * (job.max_trees > 1)}" if job.max_trees is not None else ""
    limits += f"; trees reserve at most {job.max_slots} slots at a switch" if job.max_slots is not None else ""
    end = f"sums end at {topology.ps}" if topology.ps else "sums end at a switch"
    out.print(
        f"{path.name}: {len(topology.workers)} workers, {len(topology.switches)} switches, "
        f"{len(topology.aggregators)} of them aggregate; {end}; return path {job.return_path}{limits}",
        highlight=False,
        soft_wrap=True,
    )
    out.print(
        f"with headers, 1 Gb/s of gradient takes {format_gbps(job.gradient_size)} Gb/s from a worker, "
        f"{format_gbps(job.partial_size)} as a switch's partial sum",
        highlight=False,
        soft_wrap=True,
    )


def print_change(changes: Sequence[str], before: Plan, after: Plan) -> None:
    """Print how changes of the topology change the rate."""
    part = after.rate_gbps / before.rate_gbps - 1
    rates = f"{format_gbps(before.rate_gbps)} -> {format_gbps(after.rate_gbps)} Gb/s ({part:+.1%})"
    out.print(f"{'; '.join(changes)}: {rates}", highlight=False)


def print_schemes(topology: Topology, results: Sequence[SchemeResult], with_seconds: bool) -> None:
    """Print the table of all schemes."""
    table = Table("scheme", "Gb/s", "bound", "trees", *(["s"] if with_seconds else []), "bottlenecks")
    for result in results:
        table.add_row(result.scheme, *_cells(result, with_seconds))
    out.print(table)
    for result in results:
        if result.plan and result.plan.note:
            out.print(f"{result.scheme}: {result.plan.note}", highlight=False)
    server = results[0].topology.ps
    if server and not topology.ps:
        out.print(f"the first four schemes use {server} as their parameter server", highlight=False)


def _cells(result: SchemeResult, with_seconds: bool) -> list[str]:
    plan = result.plan
    if plan is None:
        return ["no plan", "", "", *([""] if with_seconds else []), result.reason]
    bound = f"{format_gbps(plan.bound_gbps)} ({plan.gap:+.1%})"
    if plan.bound_gbps == float("inf"):
        bound = ""
    elif plan.gap < PROVED:
        bound = "proved"
    return [
        format_gbps(plan.rate_gbps),
        bound,
        str(len(plan.trees)),
        *([f"{plan.seconds:.2f}"] if with_seconds else []),
        describe_bottlenecks(result.topology, plan),
    ]


def print_plan(topology: Topology, plan: Plan, with_seconds: bool) -> None:
    """Print the rate of a plan, its trees, its bottlenecks and their shadow prices."""
    seconds = f", after {plan.seconds:.2f} s" if with_seconds else ""
    proof = "proved optimal" if plan.gap < PROVED else f"no plan exceeds {format_gbps(plan.bound_gbps)} Gb/s"
    out.print(
        f"\n{plan.scheme}: {format_gbps(plan.rate_gbps)} Gb/s from each worker; {proof}{seconds}",
        style="bold",
        highlight=False,
    )
    if (iteration := iteration_seconds(topology, plan)) is not None:
        size = f"a gradient of {topology.job.gradient_bytes:,} bytes"
        out.print(f"{size} takes {iteration * 1e3:.3f} ms", highlight=False)
    for number, tree in enumerate(plan.trees):
        share = f"tree {number}: {tree.rate_gbps / plan.rate_gbps:.1%}" if len(plan.trees) > 1 else "tree"
        table = Table(share, "sums", "sent via", "load Gb/s", "of")
        for row in describe_sums(topology, tree, plan.trees):
            table.add_row(*row)
        out.print(table)
    prices = describe_shadow_prices(topology, plan)
    for name, price in prices:
        if price:
            text = f"bottleneck, where 1 Gb/s more would gain {format_gbps(price)} Gb/s: {name}"
            out.print(text, highlight=False, soft_wrap=True)
    if without_price := ", ".join(name for name, price in prices if not price):
        text = f"bottlenecks with shadow price 0 (only a joint upgrade helps): {without_price}"
        out.print(text, highlight=False, soft_wrap=True)


def print_kept(kept: KeptPlan) -> None:
    """Print which switches change against a running plan, and what keeping the others costs."""
    chosen, best = kept.chosen, kept.best
    price = f"{kept.price:.1%} less than the best plan, which changes {_count(best.changed)}"
    out.print(
        f"changes {_count(chosen.changed)}, at {format_gbps(chosen.plan.rate_gbps)} Gb/s: "
        f"{price if kept.price > PROVED else 'as fast as the best plan, which changes ' + _count(best.changed)}",
        highlight=False,
        soft_wrap=True,
    )
    for changed, plan in kept.options:
        if plan is not chosen.plan:
            text = f"  {format_gbps(plan.rate_gbps)} Gb/s would change {_count(changed)}"
            out.print(text, highlight=False, soft_wrap=True)


def _count(switches: Sequence[str]) -> str:
    number = f"{len(switches)} switch{'' if len(switches) == 1 else 'es'}"
    return f"{number} ({join_names(switches)})" if switches else "no switch"


def print_epoch(configuration: dict[str, Any], changes: Sequence[str]) -> None:
    """Print the epoch of a configuration, and its changes against an earlier one."""
    count = f"{len(changes) or 'no'} change{'' if len(changes) == 1 else 's'}"
    out.print(f"\nepoch {configuration['epoch']}: {count}", style="bold", highlight=False)
    for change in changes:
        out.print(f"  {change}", highlight=False, markup=False, soft_wrap=True)


def print_configuration(configuration: dict[str, Any], changes: Sequence[str] | None) -> None:
    """Print the command of the emulated fabric, or why it cannot run the plan.

    Before that, if the configuration was compared with an earlier one, print its epoch and the `changes`.
    """
    if changes is not None:
        print_epoch(configuration, changes)
    emulator = configuration["emulator"]
    if emulator["arguments"]:
        command = f"\npython -m sim.emulator {' '.join(emulator['arguments'])}"
        out.print(command, highlight=False, markup=False, soft_wrap=True)
        return
    title = "the emulated fabric cannot run this plan"
    if not emulator["reasons"]:
        title = "python -m sim.cluster.plan can run this plan, and python -m sim.emulator cannot"
    out.print(f"\n{title}:", highlight=False)
    for reason in emulator["reasons"] + emulator["with_hosts"]:
        out.print(f"  {reason}", highlight=False, markup=False, soft_wrap=True)

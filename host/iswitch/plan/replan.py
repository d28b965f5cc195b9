"""`python -m iswitch.plan.replan`: plan anew after the loss of each cable between switches, and print what it takes."""

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from iswitch.distribution import describe_missing, extra_of, missing_from

PROGRAM = "python -m iswitch.plan.replan"
EXTRAS = ("cli", "plan")

try:
    import typer

    from iswitch.plan.check import check_plan
    from iswitch.plan.keeping import keep_running, running_trees
    from iswitch.plan.schemes import KINDS, PROVED, make_plan
    from iswitch.plan.sensitivity import remove
    from iswitch.plan.solver.clock import Clock
    from iswitch.plan.solver.tree import Plan
    from iswitch.plan.topology.files import read_topology
    from iswitch.plan.topology.graph_file import node_link
    from iswitch.plan.topology.topology import Topology, TopologyError, cable_name, natural_key
except ModuleNotFoundError as error:
    if extra_of(error.name) is None:
        raise
    missing = [name for extra in EXTRAS for name in missing_from(extra)]
    raise SystemExit(describe_missing(PROGRAM, missing, *EXTRAS)) from error

__all__ = ["LOSSES_HEADER", "Loss", "main", "measure_losses", "summary"]

LOSSES_HEADER = (
    f"{'lost':24}{'running Gb/s':>13}{'changed':>9}{'kept Gb/s':>11}{'best changes':>14}{'best Gb/s':>11}"
    f"{'first ms':>10}{'seconds':>9}"
)


class Loss(NamedTuple):
    """What the loss of a cable takes.

    running_gbps : rate of the running trees on the cables that are left; 0 if they have no path.
    changed, kept_gbps : switches that the plan changes, and its rate.
    best_changed, best_gbps : the same of the best plan, whatever it changes.
    proved : the best plan is proved optimal.
    first_s : seconds until the running trees have new paths and rates.
    seconds : seconds until the plan is made and checked.
    """

    cable: str
    running_gbps: float
    changed: int
    kept_gbps: float
    best_changed: int
    best_gbps: float
    proved: bool
    first_s: float
    seconds: float

    @property
    def text(self) -> str:
        """The loss as a row below `LOSSES_HEADER`."""
        return (
            f"{self.cable:24}{self.running_gbps:13.4f}{self.changed:9}{self.kept_gbps:11.4f}{self.best_changed:14}"
            f"{self.best_gbps:11.4f}{self.first_s * 1e3:10.1f}{self.seconds:9.2f}"
        )


def measure_losses(topology: Topology, kind: str, running: Plan, *, within: float, time_s: float) -> Iterator[Loss]:
    """Plan anew after the loss of each cable between switches. Cables that are a worker's only path are left out.

    Parameters
    ----------
    topology : Topology
        The topology with all cables.
    kind : {"level", "tree", "levels", "trees"}
        The kind of plan.
    running : Plan
        The running plan.
    within : float
        By which part a plan may be slower than the best one, to change fewer switches.
    time_s : float
        Time limit of each plan in seconds.

    Raises
    ------
    RuntimeError
        If the independent check refuses a plan.
    """
    switches = set(topology.switches)
    ends = [sorted(edge, key=natural_key) for edge in topology.graph.edges if switches.issuperset(edge)]
    for a, b in sorted(ends, key=lambda pair: [natural_key(end) for end in pair]):
        clock = Clock(time_s)
        try:
            left = remove(topology, cable_name(a, b))
        except TopologyError:
            continue
        running_trees(left, running.trees, False)
        first_s = clock.seconds
        best = make_plan(left, kind, time_s=clock.part(0.7).time_s)
        kept = keep_running(left, kind, running.trees, best, within=within, time_s=clock.part(1.0).time_s)
        plan = kept.chosen.plan
        levels = 1 if kind.startswith("level") else None
        if violations := check_plan(node_link(left), plan.to_dict(), levels=levels)[1]:
            raise RuntimeError(f"the plan without {cable_name(a, b)} does not hold: {violations}")
        yield Loss(
            topology.cable_label(a, b),
            next((each.plan.rate_gbps for each in kept.options if not each.changed), 0.0),
            len(kept.chosen.changed),
            plan.rate_gbps,
            len(kept.best.changed),
            kept.best.plan.rate_gbps,
            best.gap < PROVED,
            first_s,
            clock.seconds,
        )


def summary(losses: list[Loss]) -> str:
    """Return the times of all losses in a sentence."""
    if not losses:
        return "no cable between switches can be lost: each is the only path of a worker"
    seconds, first = ([getattr(each, name) for each in losses] for name in ("seconds", "first_s"))
    proved = sum(each.proved for each in losses)
    return (
        f"{len(losses)} cables: a plan takes {statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s at "
        f"most; the running trees have new paths after {max(first) * 1e3:.1f} ms at most; {proved} best plans are "
        "proved"
    )


def main(
    topology: Annotated[Path, typer.Argument(metavar="FILE", help="The fabric, as `iswitch plan` reads it.")],
    kind: Annotated[str, typer.Option(metavar="KIND", help="Kind of plan.")] = "tree",
    seconds: Annotated[float, typer.Option(metavar="S", min=0.1, help="Time limit of each plan.")] = 60.0,
    keep_within: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, max=100, help="How much slower than the best plan a plan may be.")
    ] = 5.0,
) -> None:
    """Plan a fabric, lose each cable between switches in turn, plan anew, and print rates, changes and times."""
    try:
        if kind not in KINDS:
            raise ValueError(f"--kind must be one of {', '.join(KINDS)}, not {kind!r}")
        fabric = read_topology(topology)
        running = make_plan(fabric, kind, time_s=seconds)
        print(f"{running.scheme}: {running.rate_gbps:.4f} Gb/s, {len(running.trees)} tree(s)")
        print(LOSSES_HEADER, flush=True)
        losses = []
        for loss in measure_losses(fabric, kind, running, within=keep_within / 100, time_s=seconds):
            losses.append(loss)
            print(loss.text, flush=True)
        print(summary(losses))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name=PROGRAM)

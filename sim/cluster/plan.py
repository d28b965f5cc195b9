"""`python -m sim.cluster.plan TOPOLOGY`: what a plan promises against what its fabric of compiled switches does, in
virtual time.

Real drivers sum vectors through the very switches, cables and parents that the plan tells. Two sizes are summed one
after the other; the rate is that of what the larger one has more, so that neither Join nor the first round trip counts.
Speeds are scaled down, which changes no ratio between cables, so that what a switch adds up is never what binds. Each
sum is looked at.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from examples.ppo import Options, train
from iswitch import Worker
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.output.words import describe_bottlenecks
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.errors import error_text
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.topology import Topology, TopologyError
from sim.emulator.cluster import Cluster
from sim.emulator.planned import boards_of, config_of, fabric_of, plug
from sim.emulator.program import Program

__all__ = ["SEGMENTS", "Measured", "measure", "trained"]

OUT = Path(__file__).parents[2] / "build" / "plan_timing.json"
SEGMENTS = (192, 960)
"""Of the two vectors: three windows of 64, and fifteen."""


@dataclass(frozen=True)
class Measured:
    """In bits of gradient a second, of every worker."""

    predicted_bps: float
    measured_bps: float

    @property
    def difference(self) -> float:
        """0.01: a hundredth faster than predicted."""
        return self.measured_bps / self.predicted_bps - 1


def nics(topology: Topology, plan: Plan) -> dict[str, float]:
    """Of each worker's cable, by the way that its gradients take."""
    (tree,) = plan.trees
    return {worker: topology.free_gbps(*tree.up[worker][:2]) for worker in topology.workers}


def run(
    topology: Topology, plan: Plan, work: Callable[[Program, int], Any], *, scale: float, seed: int = 1
) -> list[Any]:
    """What each worker's program returns, by rank."""
    told = make_configuration(topology, plan, scale=scale)
    boards = boards_of(told, config_of(told), seed=seed)
    try:
        with fabric_of(told, boards, scale=scale, seed=seed) as fabric:
            cluster = Cluster(fabric, seed=seed)
            programs = plug(cluster, told, work, nics(topology, plan), scale=scale)
            cluster.run()
    finally:
        for board in boards:
            board.close()
    return [program.result for program in programs]


def measure(topology: Topology, plan: Plan, *, scale: float, segments: tuple[int, int] = SEGMENTS) -> Measured:
    """RuntimeError if a sum is wrong."""
    world, elements = len(topology.workers), topology.job.payload_bytes // 4

    def work(program: Program, rank: int) -> list[float]:
        taken = []
        with Worker(world=world, rank=rank, elements=elements, transport=program.transport()) as worker:
            for count in segments:
                worker.barrier()
                vector = np.arange(count * elements, dtype=np.float32) % 1021 + rank
                begun_s = program.now()
                worker.allreduce(vector)
                taken.append(program.now() - begun_s)
                if not np.array_equal(
                    vector, np.arange(count * elements, dtype=np.float32) % 1021 * world + world * (world - 1) // 2
                ):
                    raise RuntimeError(f"{program.name} was given a sum that is none")
        return taken

    few_s, many_s = (max(times) for times in zip(*run(topology, plan, work, scale=scale), strict=True))
    bits = (segments[1] - segments[0]) * topology.job.payload_bytes * 8
    return Measured(plan.rate_gbps * 1e9 * scale, bits / (many_s - few_s))


def trained(topology: Topology, plan: Plan, options: Options, *, scale: float) -> list[tuple[float, str]]:
    """CartPole, trained by the workers over the fabric: (return of the last update, sha256 of the weights), of each."""

    def work(program: Program, rank: int) -> tuple[float, str]:
        with Worker(
            world=options.workers, rank=rank, elements=topology.job.payload_bytes // 4, transport=program.transport()
        ) as worker:
            result = train(worker, rank, options)
            return result.curve[-1].mean_return, result.weights_sha256

    return run(topology, plan, work, scale=scale)


def main(
    topology: Annotated[
        Path, typer.Argument(help="A topology as `iswitch plan` reads it, whose sums end at a switch.")
    ],
    scale: Annotated[float, typer.Option(help="What all speeds are multiplied with.")] = 0.01,
    train_updates: Annotated[
        int, typer.Option("--train", min=0, help="Updates of a CartPole training over the same fabric; 0: none.")
    ] = 0,
) -> None:
    """Predicted and measured rates of the best tree of one level, and of the best that sums again."""
    console = Console()
    table = Table(
        "plan", "predicted Mb/s", "measured Mb/s", "difference", "what is full", title=f"{topology}, speeds x {scale:g}"
    )
    found = {}
    try:
        given = read_topology(topology)
        for levels in (1, None):
            plan = plan_single_tree(given, levels=levels, adjacent=True)
            measured = measure(given, plan, scale=scale)
            found[plan.scheme] = asdict(measured) | {"difference": measured.difference}
            table.add_row(
                plan.scheme,
                f"{measured.predicted_bps / 1e6:.2f}",
                f"{measured.measured_bps / 1e6:.2f}",
                f"{measured.difference:+.1%}",
                describe_bottlenecks(given, plan),
            )
    except (OSError, TopologyError, ValueError) as error:
        console.print(error_text(error), style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    console.print(table)
    if train_updates:
        options = Options(workers=len(given.workers), num_envs=1)
        options = Options(
            workers=len(given.workers), num_envs=1, total_steps=options.workers * options.num_steps * train_updates
        )
        results = trained(given, plan, options, scale=scale)
        same = "the same weights" if len({sha for _, sha in results}) == 1 else "DIFFERENT weights"
        console.print(
            f"CartPole over that of {plan.scheme}: mean return {results[0][0]:.1f} after {train_updates} updates; "
            f"{len(results)} workers with {same}",
            highlight=False,
        )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"topology": str(topology), "scale": scale, "plans": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)

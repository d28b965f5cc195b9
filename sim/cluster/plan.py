"""`python -m sim.cluster.plan TOPOLOGY`: predicted and measured rates of a plan, on its fabric of compiled switches.

Real drivers sum vectors through the switches, cables and parents that the plan configures, in virtual time. Two sizes
are summed, one after the other. The rate is the difference of their sizes by the difference of their times, so neither
joining nor the first round trip counts. All speeds are scaled down by the same factor: the ratios between cables stay,
and a switch's adder is never the bottleneck. Every sum is checked.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from examples.ppo import Options
from examples.ppo import train as train_ppo
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

__all__ = ["SEGMENTS", "Rates", "measure", "train"]

OUT = Path(__file__).parents[2] / "build" / "plan_timing.json"
SEGMENTS = (192, 960)
"""Segments of the two vectors: 3 and 15 windows of 64."""


@dataclass(frozen=True)
class Rates:
    """Predicted and measured rates, in bits of gradient per second and worker."""

    predicted_bps: float
    measured_bps: float

    @property
    def difference(self) -> float:
        """Relative difference: 0.01 is one percent faster than predicted."""
        return self.measured_bps / self.predicted_bps - 1


def nic_rates(topology: Topology, plan: Plan) -> dict[str, float]:
    """Return the free Gb/s of the cable that each worker uses for its gradients."""
    (tree,) = plan.trees
    return {worker: topology.free_gbps(*tree.up[worker][:2]) for worker in topology.workers}


def run(
    topology: Topology, plan: Plan, work: Callable[[Program, int], Any], *, scale: float, seed: int = 1
) -> list[Any]:
    """Run a program on each worker of a plan's fabric, and return the programs' results by rank.

    Parameters
    ----------
    topology, plan : Topology, Plan
        The fabric, and the tree that sums.
    work : Callable
        Is called as `work(program, rank)`.
    scale : float
        Factor of all speeds.
    seed : int
        Seed of the switches and of the cluster.
    """
    configuration = make_configuration(topology, plan, scale=scale)
    boards = boards_of(configuration, config_of(configuration), seed=seed)
    try:
        with fabric_of(configuration, boards, scale=scale, seed=seed) as fabric:
            cluster = Cluster(fabric, seed=seed)
            programs = plug(cluster, configuration, work, nic_rates(topology, plan), scale=scale)
            cluster.run()
    finally:
        for board in boards:
            board.close()
    return [program.result for program in programs]


def measure(topology: Topology, plan: Plan, *, scale: float, segments: tuple[int, int] = SEGMENTS) -> Rates:
    """Measure the rate of a plan.

    Parameters
    ----------
    topology, plan, scale
        As in `run`.
    segments : tuple[int, int]
        Segments of the smaller and of the larger vector.

    Raises
    ------
    RuntimeError
        If a sum is wrong.
    """
    world, elements = len(topology.workers), topology.job.payload_bytes // 4

    def work(program: Program, rank: int) -> list[float]:
        times = []
        with Worker(world=world, rank=rank, elements=elements, transport=program.transport()) as worker:
            for count in segments:
                worker.barrier()
                base = np.arange(count * elements, dtype=np.float32) % 1021
                vector = base + rank
                start_s = program.now()
                worker.allreduce(vector)
                times.append(program.now() - start_s)
                if not np.array_equal(vector, base * world + world * (world - 1) // 2):
                    raise RuntimeError(f"{program.name} received a wrong sum")
        return times

    smaller_s, larger_s = (max(times) for times in zip(*run(topology, plan, work, scale=scale), strict=True))
    bits = (segments[1] - segments[0]) * topology.job.payload_bytes * 8
    return Rates(plan.rate_gbps * 1e9 * scale, bits / (larger_s - smaller_s))


def train(topology: Topology, plan: Plan, options: Options, *, scale: float) -> list[tuple[float, str]]:
    """Learn CartPole over the fabric, and return each worker's last mean return and the SHA-256 of its weights."""
    elements = topology.job.payload_bytes // 4

    def work(program: Program, rank: int) -> tuple[float, str]:
        with Worker(world=options.workers, rank=rank, elements=elements, transport=program.transport()) as worker:
            result = train_ppo(worker, rank, options)
            return result.curve[-1].mean_return, result.weights_sha256

    return run(topology, plan, work, scale=scale)


def main(
    file: Annotated[
        Path, typer.Argument(metavar="TOPOLOGY", help="A topology as `iswitch plan` reads it, with a switch as root.")
    ],
    scale: Annotated[float, typer.Option(help="Factor of all speeds.")] = 0.01,
    train_updates: Annotated[
        int, typer.Option("--train", min=0, help="Updates of a CartPole training over the same fabric; 0: none.")
    ] = 0,
) -> None:
    """Compare predicted and measured rates of two plans: the best tree of one level, and the best of any depth."""
    console = Console(highlight=False)
    columns = ("plan", "predicted Mb/s", "measured Mb/s", "difference", "bottleneck")
    table = Table(*columns, title=f"{file}, speeds x {scale:g}")
    plans = {}
    try:
        topology = read_topology(file)
        for levels in (1, None):
            plan = plan_single_tree(topology, levels=levels, adjacent=True)
            rates = measure(topology, plan, scale=scale)
            plans[plan.scheme] = asdict(rates) | {"difference": rates.difference}
            table.add_row(
                plan.scheme,
                f"{rates.predicted_bps / 1e6:.2f}",
                f"{rates.measured_bps / 1e6:.2f}",
                f"{rates.difference:+.1%}",
                describe_bottlenecks(topology, plan),
            )
    except (OSError, TopologyError, ValueError) as error:
        console.print(error_text(error), style="red", markup=False)
        raise typer.Exit(2) from error
    console.print(table)
    if train_updates:
        options = Options(workers=len(topology.workers), num_envs=1)
        options = replace(options, total_steps=options.workers * options.num_steps * train_updates)
        results = train(topology, plan, options, scale=scale)
        weights = "the same weights" if len({digest for _, digest in results}) == 1 else "DIFFERENT weights"
        console.print(
            f"CartPole over the fabric of {plan.scheme}: mean return {results[0][0]:.1f} after {train_updates} "
            "updates; "
            f"{len(results)} workers with {weights}"
        )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"topology": str(file), "scale": scale, "plans": plans}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)

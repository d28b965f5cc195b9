"""`python -m sim.cluster.plan TOPOLOGY`: predicted and measured rates of a plan, on its fabric of compiled switches.

Real drivers sum vectors through the switches, cables and parents that the plan configures, in virtual time. Of a plan
with several trees, each worker has a driver for each tree, and a vector is divided among them as the plan's stripes
say. Two sizes are summed, one after the other. The rate is the difference of their sizes by the difference of their
times, so neither joining nor the first round trip counts. All speeds are scaled down by the same factor: the ratios
between cables stay, and a switch's adder is never the bottleneck. Every sum is checked.
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
from iswitch.plan.output.stripes import round_to_stripes
from iswitch.plan.output.words import describe_bottlenecks
from iswitch.plan.schemes import KINDS, make_plan
from iswitch.plan.solver.tree import Plan, Tree
from iswitch.plan.topology.errors import error_text
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.topology import Topology, TopologyError
from sim.emulator.cluster import Cluster
from sim.emulator.planned import boards_of, config_of, fabric_of, ordinary_frames, plug
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
    """Return the free Gb/s of the cable that each worker uses for its gradients, in all trees the same."""
    return {worker: topology.free_gbps(*plan.trees[0].up[worker][:2]) for worker in topology.workers}


def run(
    topology: Topology, plan: Plan, work: Callable[[Program, int, int], Any], *, scale: float, seed: int = 1
) -> list[list[Any]]:
    """Run programs on the workers of a plan's fabric, and return the programs' results by rank and tree.

    Parameters
    ----------
    topology, plan : Topology, Plan
        The fabric, and the trees that sum.
    work : Callable
        Is called as `work(program, rank, job)`, for each worker and each tree.
    scale : float
        Factor of all speeds.
    seed : int
        Seed of the switches and of the cluster.

    Raises
    ------
    RuntimeError
        If a switch received an ordinary frame: flooded, such a frame would not end in a cycle of cables.
    """
    configuration = make_configuration(topology, plan, scale=scale)
    boards = boards_of(configuration, config_of(configuration), seed=seed)
    try:
        with fabric_of(configuration, boards, scale=scale, seed=seed) as fabric:
            cluster = Cluster(fabric, seed=seed)
            programs = plug(cluster, configuration, work, nic_rates(topology, plan), scale=scale)
            cluster.run()
            if frames := ordinary_frames(boards):
                raise RuntimeError(f"the switches received {frames} ordinary frames, but only workers are attached")
    finally:
        for board in boards:
            board.close()
    return [[program.result for program in of_worker] for of_worker in programs]


class _Meeting:
    """Lets programs wait for each other, so that the drivers of one worker begin together. It takes no messages."""

    STEP_S = 1e-5

    def __init__(self, size: int):
        self.size, self.arrived = size, 0

    def wait(self, program: Program) -> None:
        """Wait until each program has called this method once more."""
        self.arrived += 1
        target = -(-self.arrived // self.size) * self.size
        while self.arrived < target:
            program.sleep(self.STEP_S)


def measure(topology: Topology, plan: Plan, *, scale: float, segments: tuple[int, int] = SEGMENTS) -> Rates:
    """Measure the rate of a plan.

    Parameters
    ----------
    topology, plan, scale
        As in `run`.
    segments : tuple[int, int]
        Segments of the smaller and of the larger vector, rounded up to whole patterns of the plan's stripes.

    Raises
    ------
    RuntimeError
        If a sum is wrong, or as `run`.
    """
    world, elements = len(topology.workers), topology.job.payload_bytes // 4
    stripes = round_to_stripes(topology, plan)
    patterns = [-(-count // stripes.of) for count in segments]
    meeting = _Meeting(world * len(plan.trees))

    def work(program: Program, rank: int, job: int) -> list[tuple[float, float]]:
        spans = []
        with Worker(world=world, rank=rank, job=job, elements=elements, transport=program.transport()) as worker:
            for count in patterns:
                worker.barrier()
                meeting.wait(program)
                base = np.arange(count * stripes.fragments[job] * elements, dtype=np.float32) % 1021
                start_s = program.now()
                total = base + rank
                worker.allreduce(total)
                spans.append((start_s, program.now()))
                if not np.array_equal(total, base * world + world * (world - 1) // 2):
                    raise RuntimeError(f"{program.name} received a wrong sum")
        return spans

    results = [spans for of_worker in run(topology, plan, work, scale=scale) for spans in of_worker]
    smaller_s, larger_s = (max(end for _, end in each) - min(start for start, _ in each) for each in zip(*results))
    bits = (patterns[1] - patterns[0]) * stripes.of * topology.job.payload_bytes * 8
    return Rates(plan.rate_gbps * 1e9 * scale, bits / (larger_s - smaller_s))


def train(topology: Topology, plan: Plan, options: Options, *, scale: float) -> list[tuple[float, str]]:
    """Learn CartPole over the fabric of one tree, and return each worker's last mean return and the SHA-256 of its
    weights."""
    elements = topology.job.payload_bytes // 4

    def work(program: Program, rank: int, _job: int) -> tuple[float, str]:
        with Worker(world=options.workers, rank=rank, elements=elements, transport=program.transport()) as worker:
            result = train_ppo(worker, rank, options)
            return result.curve[-1].mean_return, result.weights_sha256

    return [result for (result,) in run(topology, plan, work, scale=scale)]


def main(
    file: Annotated[
        Path, typer.Argument(metavar="TOPOLOGY", help="A topology as `iswitch plan` reads it, with a switch as root.")
    ],
    scale: Annotated[float, typer.Option(help="Factor of all speeds.")] = 0.01,
    train_updates: Annotated[
        int, typer.Option("--train", min=0, help="Updates of a CartPole training over the same fabric; 0: none.")
    ] = 0,
) -> None:
    """Compare predicted and measured rates of the best plan of each kind: one tree or several, of one level or any."""
    console = Console(highlight=False)
    columns = ("plan", "predicted Mb/s", "measured Mb/s", "difference", "bottleneck")
    table = Table(*columns, title=f"{file}, speeds x {scale:g}")
    made: dict[str, Plan] = {}
    known: list[Tree] = []
    plans = {}
    try:
        topology = read_topology(file)
        for kind in KINDS:
            plan = made[kind] = make_plan(topology, kind, adjacent=True, start=known)
            known += plan.trees
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
        plan = made["tree"]
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

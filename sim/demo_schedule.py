"""`make demo-schedule`: workers learn to schedule AllReduce, and the emulated switch sums their gradients."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from examples.common.command import Folder
from examples.common.processes import Done, ProcessGroup
from iswitch import Worker
from iswitch.config import Config
from iswitch.plan.allreduce.learning.settings import Settings
from iswitch.plan.allreduce.learning.train import train
from sim.demo_switch import Emulator, Seed, application, option_errors, run

__all__ = ["app", "learn"]

TIMEOUT_S = 60.0
"""Seconds without progress before a collective fails. Long, because the workers share the processors."""

Progress = tuple[int, dict[str, float]]
"""An iteration, and the mean number of rounds of its schedules by topology."""


def learn(
    settings: Settings, rank: int, world: int, address: str, out: Path, send: Callable[[Progress | Done], None]
) -> None:
    """Train in a worker's process. The result is the SHA-256 of the worker's weights."""
    with Worker(address, world=world, rank=rank, timeout_s=TIMEOUT_S) as worker:
        policy = train(
            settings,
            rank=rank,
            on_iteration=lambda iteration, rounds: send((iteration, rounds)),
            average=lambda vector: worker.allreduce(vector, op="mean"),
        )
    path = out / f"weights{rank}.json"
    policy.save(path)
    send(Done(hashlib.sha256(path.read_bytes()).hexdigest()))


def _train(
    settings: Settings, addresses: Sequence[str], out: Path, check: Callable[[], None], console: Console
) -> list[str]:
    """Print a table of worker 0's progress, and return the SHA-256 of each worker's weights."""
    table, start = Table("", "s", *settings.topologies, box=SIMPLE), time.monotonic()
    row_interval = max(1, settings.iterations // 10)
    with (
        ProcessGroup("iswitch.plan.allreduce.learning.train") as group,
        console.status("the workers start ...") as status,
    ):
        for rank, address in enumerate(addresses):
            group.start(rank, f"worker {rank}", learn, settings, rank, len(addresses), address, out)

        def show(rank: int, progress: Progress) -> None:
            if rank == 0:
                iteration, means = progress
                status.update(f"iteration {iteration + 1} of {settings.iterations}")
                if (iteration + 1) % row_interval == 0:
                    seconds = f"{time.monotonic() - start:.0f}"
                    table.add_row(str(iteration + 1), seconds, *(f"{mean:.1f}" for mean in means.values()))

        digests = group.run(check, show)
    console.print("mean rounds of worker 0's schedules, after so many iterations:")
    console.print(table)
    return digests


def main(
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=Config().members, help="Number of workers.")] = 2,
    iterations: Annotated[int, typer.Option(metavar="N", help="Number of PPO updates.")] = Settings.iterations,
    seed: Seed = 1,
    out: Folder = Path("build/demo-schedule"),
) -> None:
    """Learn to schedule AllReduce with several workers, whose gradients the emulated switch sums."""
    with option_errors():  # all workers together play as many episodes as one worker alone would
        settings = Settings(seed=seed, iterations=iterations, num_envs=max(1, Settings.num_envs // workers))

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        digests = _train(settings, addresses, out, emulator.check, console)
        if len(set(digests)) != 1:
            console.print(f"the workers' weights differ, so they received different sums: see {out}", style="red")
            return False
        weights = out / "weights0.json"
        console.print(
            f"weights: the same on all {workers} workers, sha256 {digests[0][:16]}..., in {weights}; try\n"
            f"  python -m iswitch.plan.allreduce table --weights {weights}",
            soft_wrap=True,
        )
        return True

    raise typer.Exit(run(out, seed, {}, demo, workers=workers))


app = application(main)

if __name__ == "__main__":
    app()

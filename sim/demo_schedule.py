"""Train the scheduler of AllReduce with several workers, whose gradients the emulated switch sums (`make
demo-schedule`)."""

import argparse
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from examples.crew import Crew, Done
from iswitch import Worker
from iswitch.config import Config
from iswitch.plan.allreduce.learning.train import Settings, train
from sim.demo import Emulator, made, run

__all__ = ["learn", "main"]

TIMEOUT_S = 60.0
"""A collective without progress; long, as in `examples.launch`."""

Progress = tuple[int, dict[str, float]]
"""An iteration, and the mean rounds of its games by topology."""


def learn(
    settings: Settings, rank: int, world: int, address: str, out: Path, send: Callable[[Progress | Done], None]
) -> None:
    """One worker's process; ends with the sha256 of its weights."""
    with Worker(address, world=world, rank=rank, timeout_s=TIMEOUT_S) as worker:
        policy = train(
            settings,
            rank=rank,
            tell=lambda iteration, lengths: send((iteration, lengths)),
            share=lambda vector: worker.allreduce(vector, op="mean"),
        )
    path = out / f"weights{rank}.json"
    policy.save(path)
    send(Done(hashlib.sha256(path.read_bytes()).hexdigest()))


def _train(
    settings: Settings, addresses: Sequence[str], out: Path, watch: Callable[[], None], console: Console
) -> list[str]:
    """The sha256 of every worker's weights, and a table of how worker 0 learnt."""
    table, begun = Table("", "s", *settings.topologies, box=SIMPLE), time.monotonic()
    every = max(1, settings.iterations // 10)
    with Crew("iswitch.plan.allreduce.learning.train") as crew, console.status("the workers start ...") as status:
        for rank, address in enumerate(addresses):
            crew.start(rank, f"worker {rank}", learn, settings, rank, len(addresses), address, out)

        def heard(rank: int, message: Progress) -> None:
            if rank == 0:
                iteration, means = message
                status.update(f"iteration {iteration + 1} of {settings.iterations}")
                if (iteration + 1) % every == 0:
                    table.add_row(
                        str(iteration + 1),
                        f"{time.monotonic() - begun:.0f}",
                        *(f"{mean:.1f}" for mean in means.values()),
                    )

        found = crew.run(watch, heard)
    console.print("mean rounds of worker 0's games, after so many iterations:")
    console.print(table)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo_schedule", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="number of workers (default: %(default)s)")
    parser.add_argument(
        "--iterations",
        type=int,
        default=Settings.iterations,
        metavar="N",
        help="number of PPO updates (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/demo-schedule"),
        metavar="FOLDER",
        help="where to write results (default: %(default)s)",
    )
    given = parser.parse_args()
    if not 1 <= given.workers <= Config().members:
        parser.error(
            f"--workers must be 1 to {Config().members}, because a job of this switch has at most {Config().members}, not {given.workers}"
        )
    # All workers together play as many games as one alone would.
    settings = made(
        parser,
        lambda: Settings(seed=given.seed, iterations=given.iterations, copies=max(1, Settings.copies // given.workers)),
    )

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        found = _train(settings, addresses, given.out, emulator.watch, console)
        if len(set(found)) != 1:
            console.print(
                f"the workers' weights differ, so they were not given the same sums: see {given.out}",
                style="red",
                highlight=False,
            )
            return False
        console.print(
            f"weights: the same on all {given.workers} workers, sha256 {found[0][:16]}..., in {given.out / 'weights0.json'}; try\n"
            f"  python -m iswitch.plan.allreduce table --weights {given.out / 'weights0.json'}",
            highlight=False,
            soft_wrap=True,
        )
        return True

    return run(given.out, given.seed, {}, demo, workers=given.workers)


if __name__ == "__main__":
    raise SystemExit(main())

"""`make demo-schedule`: the scheduler of AllReduce learns, and its own gradients are summed by the emulated switch."""

import argparse
import hashlib
import multiprocessing
import queue
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from iswitch import IswitchError, Worker
from iswitch.config import Config
from iswitch.plan.allreduce.train import Settings, train
from iswitch.rl.launch import LaunchError, stop_on_signals
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from sim.demo import Emulator

__all__ = ["learn", "main"]

LOOK_S = 0.5
TIMEOUT_S = 60.0
"""A collective without progress; long, as in `iswitch.rl.launch`."""


def learn(settings: Settings, rank: int, world: int, address: str, told: Any, out: Path) -> None:
    """One worker's process: tells (rank, iteration, mean rounds by topology), and at last (rank, None, sha256 of its weights)."""
    with Worker(address, world=world, rank=rank, timeout_s=TIMEOUT_S) as worker:
        tell = lambda iteration, lengths: told.put((rank, iteration, lengths))
        policy = train(settings, rank=rank, tell=tell, share=lambda vector: worker.allreduce(vector, op="mean"))
    path = out / f"weights{rank}.json"
    policy.save(path)
    told.put((rank, None, hashlib.sha256(path.read_bytes()).hexdigest()))


def _train(settings: Settings, addresses: list[str], out: Path, emulator: Emulator, console: Console) -> list[str]:
    """The sha256 of every worker's weights. LaunchError if a process ends before it has told."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    processes: list[BaseProcess] = [context.Process(target=learn, args=(settings, rank, len(addresses), address, told, out), daemon=True)
                                    for rank, address in enumerate(addresses)]
    for process in processes:
        process.start()
    table, begun = Table("", "s", *settings.topologies, box=SIMPLE), time.monotonic()
    done: dict[int, str] = {}
    every = max(1, settings.iterations // 10)
    try:
        with console.status("") as status:
            while len(done) < len(addresses):
                try:
                    rank, iteration, what = told.get(timeout=LOOK_S)
                except queue.Empty:
                    emulator.watch()
                    if dead := [process for rank, process in enumerate(processes) if process.exitcode and rank not in done]:
                        raise LaunchError(f"a worker has ended, with exit code {dead[0].exitcode}; what it said stands above") from None
                    continue
                if iteration is None:
                    done[rank] = what
                elif rank == 0:
                    status.update(f"iteration {iteration + 1} of {settings.iterations}")
                    if (iteration + 1) % every == 0:
                        table.add_row(str(iteration + 1), f"{time.monotonic() - begun:.0f}", *(f"{mean:.1f}" for mean in what.values()))
    finally:
        for process in processes:
            process.terminate()
    console.print("mean rounds of worker 0's games, after so many iterations:")
    console.print(table)
    return [done[rank] for rank in range(len(addresses))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo_schedule", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=Settings.iterations)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/demo-schedule"))
    given = parser.parse_args()
    if not 1 <= given.workers <= Config().members:
        parser.error(f"--workers must be 1 to {Config().members}, the members that a job can have in this switch, not {given.workers}")
    console = Console()
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        # All workers together play as many games as one alone would.
        settings = Settings(seed=given.seed, iterations=given.iterations, copies=max(1, Settings.copies // given.workers))
        with stop_on_signals(), Emulator(given.out, given.seed, {}, workers=given.workers) as emulator:
            with console.status("the switch is compiled and started (minutes the first time, then seconds) ..."):
                addresses = emulator.addresses()
            console.print(f"the emulated switch listens at {', '.join(addresses)}", highlight=False, soft_wrap=True)
            found = _train(settings, addresses, given.out, emulator, console)
    except (LaunchError, IswitchError, ValueError) as error:
        console.print(f"the demo failed: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    if len(set(found)) != 1:
        console.print(f"the workers' weights differ, so they were not given the same sums: see {given.out}", style="red", highlight=False)
        return 1
    console.print(f"weights: the same on all {given.workers} workers, sha256 {found[0][:16]}..., in {given.out / 'weights0.json'}; try\n"
                  f"  python -m iswitch.plan.allreduce table --weights {given.out / 'weights0.json'}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`make demo`: PPO learns CartPole, and the emulated switch sums its gradients."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.common.command import Folder
from examples.common.launch import launch
from examples.ppo import Options, evaluate, train
from iswitch.config import Config
from sim.demo_switch import Corrupt, Duplicate, Emulator, Engine, Loss, Reorder, Seed, application, option_errors, run
from sim.emulator.device import ENGINES

__all__ = ["app"]

OUT = Path("build/demo")


def main(
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=Config().members, help="Number of workers.")
    ] = Options.workers,
    seed: Seed = Options.seed,
    total_steps: Annotated[
        int, typer.Option(metavar="N", help="Environment steps of all workers together, at most.")
    ] = Options.total_steps,
    out: Folder = OUT,
    kill: Annotated[
        int | None,
        typer.Option(
            metavar="RANK", help="Kill this worker during the training. The others continue, and it comes back."
        ),
    ] = None,
    leaves: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=Config().ports,
            help="Leaf switches below a root, among which the workers are divided. 0 is one switch.",
        ),
    ] = 0,
    loss: Loss = 0.0,
    duplicate: Duplicate = 0.0,
    reorder: Reorder = 0.0,
    corrupt: Corrupt = 0.0,
    engine: Engine = ENGINES[0],
) -> None:
    """Learn CartPole with PPO, whose gradients the switch sums.

    The exit status is 1 if the policy does not solve CartPole.
    """
    if leaves > workers:
        raise typer.BadParameter(f"--leaves must be at most the number of workers, {workers}, not {leaves}")
    faults = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt}
    with option_errors():
        options = Options(workers=workers, seed=seed, total_steps=total_steps)

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        summary = launch(
            options,
            addresses,
            out,
            train=train,
            evaluate=evaluate,
            check=emulator.check,
            console=console,
            notes={"faults": faults},
            kill=kill,
            leaves=emulator.leaves(addresses),
        )
        if summary["solved"]:
            command = "make watch" if out == OUT else f"{sys.executable} -m examples.watch {out}"
            console.print(f"     watch  {command}: draws an episode as {out}/policy.gif", soft_wrap=True)
        else:
            console.print(
                f"With make: `make demo SEED={seed + 1}`, or `make demo STEPS={2 * total_steps}`.", soft_wrap=True
            )
        return bool(summary["solved"])

    raise typer.Exit(run(out, seed, faults, demo, workers=workers, leaves=leaves, engine=engine))


app = application(main)

if __name__ == "__main__":
    app()

"""`make demo-apex`: Ape-X DQN learns CartPole, and the emulated switch serves its prioritized replay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.apex import Options, train
from examples.common.command import Folder
from iswitch.switch.replay import USUAL
from sim.demo_switch import Corrupt, Duplicate, Emulator, Loss, Reorder, Seed, application, option_errors, run

__all__ = ["REPLAY", "app"]

REPLAY = ("--replay", "default")
"""Arguments for an emulator with a replay service."""
ACTORS_MAX = USUAL.sessions - 1
"""The learner takes one session of the replay service, and each actor another."""


def main(
    actors: Annotated[int, typer.Option(metavar="N", min=1, max=ACTORS_MAX, help="Number of actors.")] = Options.actors,
    seed: Seed = Options.seed,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of the learner, at most.")] = Options.steps,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Execute all requests in a fixed order, so that the same seed samples the same items.",
        ),
    ] = False,
    out: Folder = Path("build/demo-apex"),
    loss: Loss = 0.0,
    duplicate: Duplicate = 0.0,
    reorder: Reorder = 0.0,
    corrupt: Corrupt = 0.0,
) -> None:
    """Learn CartPole with Ape-X DQN, whose prioritized replay is in the emulated switch.

    The exit status is 1 if the policy does not solve CartPole.
    """
    faults = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt}
    with option_errors():
        options = Options(actors=actors, seed=seed, steps=steps, deterministic=deterministic)

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        summary = train(options, addresses, out, check=emulator.check, console=console, notes={"faults": faults})
        if not summary["solved"]:
            console.print(
                f"not solved: the evaluation returned {summary['mean_reward_eval']:.1f}, less than "
                f"{options.solved_return:g}"
            )
        return bool(summary["solved"])

    raise typer.Exit(run(out, seed, faults, demo, workers=actors + 1, arguments=REPLAY))


app = application(main)

if __name__ == "__main__":
    app()

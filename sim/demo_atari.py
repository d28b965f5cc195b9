"""`make demo-atari`: the replay of the emulated switch stores each frame of an Atari game once, and samples stacks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.apex_atari import Options, launch
from examples.common.command import Folder
from sim.demo_apex import REPLAY
from sim.demo_switch import Corrupt, Duplicate, Emulator, Loss, Reorder, Seed, application, option_errors, run

__all__ = ["app"]

CLIENTS = 2
"""One adds transitions, and the other samples them."""


def main(
    game: Annotated[str, typer.Option(help="Name of the game in the Arcade Learning Environment.")] = Options.game,
    seed: Seed = Options.seed,
    transitions: Annotated[int, typer.Option(metavar="N", help="Transitions to add.")] = Options.transitions,
    out: Folder = Path("build/demo-atari"),
    loss: Loss = 0.0,
    duplicate: Duplicate = 0.0,
    reorder: Reorder = 0.0,
    corrupt: Corrupt = 0.0,
) -> None:
    """Store the frames of an Atari game in the replay of the emulated switch, each once, and sample stacks of them."""
    faults = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt}
    with option_errors():
        options = Options(game=game, seed=seed, transitions=transitions)

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        launch(options, addresses, out, check=emulator.check, console=console, notes={"faults": faults})
        return True

    raise typer.Exit(run(out, seed, faults, demo, workers=CLIENTS, arguments=REPLAY))


app = application(main)

if __name__ == "__main__":
    app()

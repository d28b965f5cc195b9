"""Store the frames of an Atari game in the replay of the emulated switch, each once, and sample stacks of them (`make
demo-atari`)."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from examples.apex.atari import AtariOptions
from examples.apex.atari_launch import launch_atari
from sim.demo import FAULTS, Emulator, made, run
from sim.demo_apex import REPLAY
from sim.emulator.faults import PROBABILITIES

__all__ = ["main"]

CLIENTS = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo_atari", description=__doc__)
    parser.add_argument(
        "--game",
        default=AtariOptions.game,
        help="name of the game in the Arcade Learning Environment (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=AtariOptions.seed,
        metavar="N",
        help="seed of all random numbers (default: %(default)s)",
    )
    parser.add_argument(
        "--transitions",
        type=int,
        default=AtariOptions.transitions,
        metavar="N",
        help="transitions to play (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/demo-atari"),
        metavar="FOLDER",
        help="where to write results (default: %(default)s)",
    )
    for name in FAULTS:
        parser.add_argument(
            f"--{name}", type=float, default=0.0, metavar="P", help=f"probability of {PROBABILITIES[name]} (default: 0)"
        )
    given = parser.parse_args()
    faults = {name: getattr(given, name) for name in FAULTS}
    options = made(parser, lambda: AtariOptions(game=given.game, seed=given.seed, transitions=given.transitions))

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        launch_atari(options, addresses, given.out, watch=emulator.watch, console=console, notes={"faults": faults})
        return True

    return run(given.out, given.seed, faults, demo, workers=CLIENTS, more=REPLAY)


if __name__ == "__main__":
    raise SystemExit(main())

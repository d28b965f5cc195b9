"""Train Ape-X DQN on CartPole, with the prioritized replay in the emulated switch (`make demo-apex`)."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from examples.apex.launch import SOLVED, launch
from examples.apex.options import Options
from sim.demo import FAULTS, Emulator, made, run
from sim.emulator.faults import PROBABILITIES
from sim.emulator.replay import EMULATED

__all__ = ["REPLAY", "main"]

REPLAY = ("--replay", "default")
"""Arguments for an emulator with a replay service."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo_apex", description=__doc__)
    parser.add_argument(
        "--actors", type=int, default=Options.actors, metavar="N", help="number of actors (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=Options.seed, metavar="N", help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=Options.steps, metavar="N", help="most steps of the learner (default: %(default)s)"
    )
    parser.add_argument(
        "--lockstep",
        action="store_true",
        help="execute all requests in a fixed order, so that the same seed samples the same items",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/demo-apex"),
        metavar="FOLDER",
        help="where to write results (default: %(default)s)",
    )
    for name in FAULTS:
        parser.add_argument(
            f"--{name}", type=float, default=0.0, metavar="P", help=f"probability of {PROBABILITIES[name]} (default: 0)"
        )
    given = parser.parse_args()
    places = EMULATED.sessions - 1  # but the learner's
    if not 1 <= given.actors <= places:
        parser.error(
            f"--actors must be 1 to {places}, because this switch has {places + 1} sessions, one for the learner; not {given.actors}"
        )
    faults = {name: getattr(given, name) for name in FAULTS}
    options = made(
        parser, lambda: Options(actors=given.actors, seed=given.seed, steps=given.steps, lockstep=given.lockstep)
    )

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        summary = launch(options, addresses, given.out, watch=emulator.watch, console=console, notes={"faults": faults})
        if not summary["solved"]:
            console.print(
                f"not solved: the evaluation returned {summary['mean_reward_eval']:.1f}, less than {SOLVED:g}"
            )
        return bool(summary["solved"])

    return run(given.out, given.seed, faults, demo, workers=given.actors + 1, more=REPLAY)


if __name__ == "__main__":
    raise SystemExit(main())

"""`make demo-apex`: starts the emulated switch with a replay service, and Ape-X DQN whose replay it is."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from iswitch.rl.apex.launch import SOLVED, launch
from iswitch.rl.apex.options import Options
from rich.console import Console

from sim.demo import FAULTS, Emulator, made, run
from sim.emulator.replay import EMULATED

__all__ = ["REPLAY"]

REPLAY = ("--replay", "default")
"""Arguments for an emulator with a replay service."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo_apex", description=__doc__)
    parser.add_argument("--actors", type=int, default=Options.actors)
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--steps", type=int, default=Options.steps, help="of the learner, at most (%(default)s)")
    parser.add_argument("--lockstep", action="store_true", help="all operations in an order fixed beforehand: the same seed gives the same draws")
    parser.add_argument("--out", type=Path, default=Path("build/demo-apex"))
    for name in FAULTS:
        parser.add_argument(f"--{name}", type=float, default=0.0, help="chance that it happens to a frame")
    given = parser.parse_args()
    places = EMULATED.sessions - 1  # but the learner's
    if not 1 <= given.actors <= places:
        parser.error(f"--actors must be 1 to {places}, for which this switch has places, not {given.actors}")
    faults = {name: getattr(given, name) for name in FAULTS}
    options = made(parser, lambda: Options(actors=given.actors, seed=given.seed, steps=given.steps, lockstep=given.lockstep))

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        summary = launch(options, addresses, given.out, watch=emulator.watch, console=console, notes={"faults": faults})
        if not summary["solved"]:
            console.print(f"not solved: the evaluation returned {summary['mean_reward_eval']:.1f}, less than {SOLVED:g}")
        return bool(summary["solved"])

    return run(given.out, given.seed, faults, demo, workers=given.actors + 1, more=REPLAY)


if __name__ == "__main__":
    raise SystemExit(main())

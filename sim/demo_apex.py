"""`make demo-apex`: starts the emulated switch with a replay service, and Ape-X DQN whose replay it is."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from iswitch import IswitchError
from iswitch.rl.apex.launch import SOLVED, launch
from iswitch.rl.apex.options import Options
from iswitch.rl.launch import LaunchError, stop_on_signals
from rich.console import Console

from sim.demo import FAULTS, Emulator
from sim.emulator.replay import EMULATED

__all__ = ["run"]

def run(out: Path, seed: int, faults: dict[str, float], clients: int, demo: Callable[[Sequence[str], Emulator, Console], bool]) -> int:
    """Exit code of a demo with a switch of its own, of which it gets an address for each client; it says whether it went as it should."""
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with stop_on_signals(), Emulator(out, seed, faults, workers=clients, more=["--replay", "default"]) as emulator:
            with console.status("the switch is compiled and started (minutes the first time, then seconds) ..."):
                addresses = emulator.addresses()
            console.print(f"the emulated switch listens at {', '.join(dict.fromkeys(addresses))}; "
                          + (", ".join(f"{name} {rate:g}" for name, rate in faults.items() if rate) or "no faults"),
                          highlight=False, soft_wrap=True)
            return 0 if demo(addresses, emulator, console) else 1
    except (LaunchError, IswitchError, ValueError) as error:
        console.print(f"the demo failed: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


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
    options = Options(actors=given.actors, seed=given.seed, steps=given.steps, lockstep=given.lockstep)

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        summary = launch(options, addresses, given.out, watch=emulator.watch, console=console, notes={"faults": faults})
        if not summary["solved"]:
            console.print(f"not solved: the evaluation returned {summary['mean_reward_eval']:.1f}, less than {SOLVED:g}")
        return bool(summary["solved"])

    return run(given.out, given.seed, faults, given.actors + 1, demo)


if __name__ == "__main__":
    raise SystemExit(main())

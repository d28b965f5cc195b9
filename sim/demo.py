"""`make demo`: starts the emulated switch, and PPO whose gradients it sums. The exit status is 1 if CartPole is not
solved."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from examples.launch import LaunchError, launch, stop_on_signals
from examples.policy import Policy
from examples.training import Options
from examples.watch import watch
from iswitch import IswitchError
from iswitch.config import Config
from sim.emulator.faults import PROBABILITIES

__all__ = ["FAULTS", "Emulator", "made", "run"]

FAULTS = ("loss", "duplicate", "reorder", "corrupt")
READY_S = 600
STOP_S = 10
LOG_LINES = 15
OUT = Path("build/demo")
"""Where `make demo` keeps its files."""
UPLINK = Config().ports - 1
Made = TypeVar("Made")


class Emulator:
    """The emulator's process, within a `with`: one switch, or a root with a link to each of its `leaves`, among which
    the workers are divided. more: further arguments of the emulator."""

    def __init__(
        self, out: Path, seed: int, faults: dict[str, float], *, workers: int, leaves: int = 0, more: Sequence[str] = ()
    ) -> None:
        self.ready, self.log = out / "ready.json", out / "emulator.log"
        self.ready.unlink(missing_ok=True)
        self.command = [
            sys.executable,
            "-m",
            "sim.emulator",
            "--udp-base",
            "0",
            "--seed",
            str(seed),
            "--ready-file",
            str(self.ready),
            "--summary",
            str(out / "switch.json"),
            *more,
        ]
        for name, rate in faults.items():
            self.command += [f"--{name}", str(rate)]
        self.homes = [1 + rank * leaves // workers if leaves else 0 for rank in range(workers)]
        if leaves:
            self.command += ["--switches", str(leaves + 1)]
            bad = "".join(f",{name}={rate}" for name, rate in faults.items() if rate)
            for leaf in range(1, leaves + 1):
                ranks = ",".join(str(rank) for rank, home in enumerate(self.homes) if home == leaf)
                self.command += ["--link", f"{leaf}:{UPLINK}-0:{leaf - 1}{bad}", "--leaf", f"{leaf}-0:{ranks}"]

    def __enter__(self) -> "Emulator":
        with self.log.open(
            "w"
        ) as log:  # a session of its own: Ctrl-C is for this process, which then stops the emulator
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def addresses(self) -> list[str]:
        """Wait until the switches are ready, and return for each worker a port of its switch."""
        deadline = time.monotonic() + READY_S
        while not self.ready.exists():
            self.watch()
            if time.monotonic() > deadline:
                raise LaunchError(f"the emulator was not ready after {READY_S} s: see {self.log}")
            time.sleep(0.05)
        ports = [
            [f"{at[0]}:{at[1]}" for at in switch["ports"] if at]
            for switch in json.loads(self.ready.read_text())["switches"]
        ]
        return [ports[home][self.homes[:rank].count(home) % len(ports[home])] for rank, home in enumerate(self.homes)]

    def leaves(self, addresses: Sequence[str]) -> list[str]:
        """Return one of the workers' `addresses` at each leaf."""
        return list({home: address for home, address in zip(self.homes, addresses) if home}.values())

    def watch(self) -> None:
        """Raise LaunchError with the end of the log if the emulator has ended."""
        if self.process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise LaunchError(f"the emulated switch ended (exit code {self.process.returncode}):\n{tail}")


def run(
    out: Path,
    seed: int,
    faults: dict[str, float],
    demo: Callable[[Sequence[str], Emulator, Console], bool],
    *,
    workers: int,
    leaves: int = 0,
    more: Sequence[str] = (),
) -> int:
    """Start switches for a demo, run it, and return its exit code.

    Parameters
    ----------
    out : Path
        Folder of the emulator's log and files.
    seed : int
        Seeds the faults.
    faults : dict[str, float]
        Probability of each of `FAULTS` for a frame.
    demo : Callable
        Is called with an address for each worker, the emulator and a console. It returns True if the demo succeeded.
    workers, leaves : int
        Workers, and leaves of a tree of switches; 0 is one switch.
    more : Sequence[str]
        Further arguments of the emulator.
    """
    console = Console()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with stop_on_signals(), Emulator(out, seed, faults, workers=workers, leaves=leaves, more=more) as emulator:
            with console.status("the switch is compiled and started (minutes the first time, then seconds) ..."):
                addresses = emulator.addresses()
            where = f"{leaves} emulated leaves below a root listen" if leaves else "the emulated switch listens"
            console.print(
                f"{where} at {', '.join(dict.fromkeys(addresses))}; "
                + (", ".join(f"{name} {rate:g}" for name, rate in faults.items() if rate) or "no faults"),
                highlight=False,
                soft_wrap=True,
            )
            return 0 if demo(addresses, emulator, console) else 1
    except (LaunchError, IswitchError, ValueError) as error:
        console.print(f"the demo failed: {error}", style="red", markup=False, highlight=False)
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        console.print(
            f"the demo failed: {error.filename} cannot be written: {error.strerror}. Choose another folder with --out",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def made(parser: argparse.ArgumentParser, make: Callable[[], Made]) -> Made:
    """Return what `make` returns. If it raises ValueError, end the program with this message as the parser's error."""
    try:
        return make()
    except ValueError as error:
        parser.error(str(error))


def play(out: Path, console: Console) -> int:
    """Play the policy that a demo has kept in this folder, into `policy.gif`. Return the exit code."""
    path, gif = out / "policy.npz", out / "policy.gif"
    try:
        policy = Policy.load(path)
        console.print(
            f"{path}: {policy.environment}, seed {policy.seed}, mean return {policy.mean_return:.1f} in the "
            f"evaluation, sha256 {policy.weights_sha256[:16]}...",
            highlight=False,
            soft_wrap=True,
        )
        returned = watch(policy, gif)
    except OSError as error:
        console.print(
            f"{gif} cannot be written: {error.strerror or error}",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1
    except ValueError as error:
        console.print(f"no policy can be played: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        if not os.path.exists(path):  # False also where the folder cannot be read
            console.print("`make demo` trains one first.")
        return 1
    console.print(f"{gif}: one unseen episode, return {returned:.0f}", highlight=False, soft_wrap=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo", description=__doc__)
    parser.add_argument(
        "--workers", type=int, default=Options.workers, metavar="N", help="number of workers (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=Options.seed, metavar="N", help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument(
        "--total-steps",
        type=int,
        default=Options.total_steps,
        metavar="N",
        help="most environment steps of all workers together (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="FOLDER", help="where to write results (default: %(default)s)"
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="train nothing; play the policy that was kept in FOLDER, and draw it as policy.gif there",
    )
    parser.add_argument(
        "--kill",
        type=int,
        metavar="RANK",
        help="kill this worker during the training; the others go on, and it comes back",
    )
    for name in FAULTS:
        parser.add_argument(
            f"--{name}", type=float, default=0.0, metavar="P", help=f"probability of {PROBABILITIES[name]} (default: 0)"
        )
    parser.add_argument(
        "--leaves",
        type=int,
        default=0,
        metavar="N",
        help="number of leaf switches below a root, among which the workers are divided (default: one switch)",
    )
    given = parser.parse_args()
    if given.watch:
        return play(given.out, Console())
    if not 1 <= given.workers <= Config().members:
        parser.error(
            f"--workers must be 1 to {Config().members}, the members that a job can have in this switch, not {given.workers}"
        )
    if not 0 <= given.leaves <= min(given.workers, Config().ports):
        parser.error(
            f"--leaves must be 0 to {min(given.workers, Config().ports)}, the workers and the ports of the root, not {given.leaves}"
        )
    if given.leaves and given.kill is not None:
        parser.error("--kill needs one switch, without --leaves: nobody joins a tree that runs")
    faults = {name: getattr(given, name) for name in FAULTS}
    options = made(parser, lambda: Options(workers=given.workers, seed=given.seed, total_steps=given.total_steps))

    def demo(addresses: Sequence[str], emulator: Emulator, console: Console) -> bool:
        summary = launch(
            options,
            addresses,
            given.out,
            watch=emulator.watch,
            console=console,
            notes={"faults": faults},
            kill=given.kill,
            leaves=emulator.leaves(addresses),
        )
        if summary["solved"]:
            command = "make watch" if given.out == OUT else f"{sys.executable} -m sim.demo --watch --out {given.out}"
            console.print(
                f"     watch  {command}: draws an episode as {given.out}/policy.gif", highlight=False, soft_wrap=True
            )
        else:
            console.print(
                f"With make: `make demo SEED={given.seed + 1}`, or `make demo STEPS={2 * given.total_steps}`.",
                highlight=False,
                soft_wrap=True,
            )
        return bool(summary["solved"])

    return run(given.out, given.seed, faults, demo, workers=given.workers, leaves=given.leaves)


if __name__ == "__main__":
    raise SystemExit(main())

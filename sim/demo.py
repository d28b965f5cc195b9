"""`make demo`: starts the emulated switch, and PPO whose workers have their gradients summed by it."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from iswitch import IswitchError
from iswitch.config import Config
from iswitch.rl.launch import LaunchError, launch, stop_on_signals
from iswitch.rl.training import Options
from rich.console import Console

FAULTS = ("loss", "duplicate", "reorder", "corrupt")
READY_S = 600
STOP_S = 10
LOG_LINES = 15


class Emulator:
    """The emulator's process, within a `with`."""

    def __init__(self, out: Path, seed: int, faults: dict[str, float]) -> None:
        self.ready, self.log = out / "ready.json", out / "emulator.log"
        self.ready.unlink(missing_ok=True)
        self.command = [sys.executable, "-m", "sim.emulator", "--udp-base", "0", "--seed", str(seed),
                        "--ready-file", str(self.ready), "--summary", str(out / "switch.json")]
        for name, rate in faults.items():
            self.command += [f"--{name}", str(rate)]

    def __enter__(self) -> "Emulator":
        with self.log.open("w") as log:  # a session of its own: Ctrl-C is for us, and we stop it when nobody needs it
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
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
        """Of the switch's ports, once it is ready; the first time it has to be compiled."""
        deadline = time.monotonic() + READY_S
        while not self.ready.exists():
            self.watch()
            if time.monotonic() > deadline:
                raise LaunchError(f"the emulator was not ready after {READY_S} s: see {self.log}")
            time.sleep(0.05)
        return [f"{host}:{port}" for host, port in json.loads(self.ready.read_text())["ports"]]

    def watch(self) -> None:
        if self.process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise LaunchError(f"the emulated switch ended (exit code {self.process.returncode}):\n{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.demo", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-steps", type=int, default=Options.total_steps)
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    parser.add_argument("--kill", type=int, metavar="RANK", help="kill this worker on the way; the others go on, and it comes back")
    for name in FAULTS:
        parser.add_argument(f"--{name}", type=float, default=0.0, help="chance that it happens to a frame")
    given = parser.parse_args()
    if not 1 <= given.workers <= Config().members:
        parser.error(f"--workers must be 1 to {Config().members}, the members that a job can have in this switch, not {given.workers}")
    faults = {name: getattr(given, name) for name in FAULTS}
    options = Options(workers=given.workers, seed=given.seed, total_steps=given.total_steps)

    console = Console()
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        with stop_on_signals(), Emulator(given.out, given.seed, faults) as emulator:
            with console.status("the switch is compiled and started (minutes the first time, then seconds) ..."):
                addresses = emulator.addresses()
            console.print(f"the emulated switch listens at {', '.join(addresses)}; "
                          + (", ".join(f"{name} {rate:g}" for name, rate in faults.items() if rate) or "no faults"),
                          highlight=False, soft_wrap=True)
            launch(options, addresses, given.out, watch=emulator.watch, console=console, notes={"faults": faults}, kill=given.kill)
    except (LaunchError, IswitchError, ValueError) as error:
        console.print(f"the demo failed: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

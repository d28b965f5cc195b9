"""What all demos share: the emulated switch as a process, its faults as options, and messages for failures."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from examples.common.command import stop_on_signals
from examples.common.processes import LaunchError
from iswitch import IswitchError
from iswitch.config import Config
from sim.emulator.device import ENGINES
from sim.emulator.faults import PROBABILITIES

__all__ = [
    "Corrupt",
    "Duplicate",
    "Emulator",
    "Engine",
    "Loss",
    "Reorder",
    "Seed",
    "application",
    "option_errors",
    "run",
]

READY_S = 600
STOP_S = 10
LOG_LINES = 15
UPLINK = Config().ports - 1
"""Port of a leaf that leads to the root."""


def _fault(name: str) -> Any:
    return typer.Option(min=0, max=1, metavar="P", help=f"Probability of {PROBABILITIES[name]}.")


Loss = Annotated[float, _fault("loss")]
Duplicate = Annotated[float, _fault("duplicate")]
Reorder = Annotated[float, _fault("reorder")]
Corrupt = Annotated[float, _fault("corrupt")]
Engine = Annotated[
    str, typer.Option(metavar="|".join(ENGINES), help="Simulator that compiles the RTL, or the software switch.")
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")]


class Emulator:
    """The emulator's process, within a `with` block: one switch, or a tree of a root and leaves.

    Parameters
    ----------
    out : Path
        Folder of the emulator's log and files.
    seed : int
        Seed of the faults.
    faults : dict[str, float]
        Probability of each fault for a frame.
    workers : int
        Processes that need an address.
    leaves : int
        Leaves below the root. The workers are divided among them. 0 is one switch.
    arguments : Sequence[str]
        Further arguments of the emulator.
    engine : str
        One of `ENGINES`. The software switch runs by itself, as `iswitch switch` starts it, if there are neither faults
        nor leaves, which the emulator would provide.

    Raises
    ------
    ValueError
        If there is no such engine.
    """

    def __init__(
        self,
        out: Path,
        seed: int,
        faults: dict[str, float],
        *,
        workers: int,
        leaves: int = 0,
        arguments: Sequence[str] = (),
        engine: str = ENGINES[0],
    ) -> None:
        if engine not in ENGINES:
            raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, not {engine!r}")
        self.ready, self.log = out / "ready.json", out / "emulator.log"
        self.ready.unlink(missing_ok=True)
        files = ["--udp-base", "0", "--ready-file", str(self.ready), "--summary", str(out / "switch.json")]
        if engine == "software" and not leaves and not any(faults.values()) and not arguments:
            self.command = [sys.executable, "-m", "iswitch.tools.cli", "switch", *files]
        else:
            self.command = [sys.executable, "-m", "sim.emulator", *files, "--seed", str(seed), "--engine", engine]
            self.command += arguments
            for name, rate in faults.items():
                self.command += [f"--{name}", str(rate)]
        self.switches = [1 + rank * leaves // workers if leaves else 0 for rank in range(workers)]
        if leaves:
            self.command += ["--switches", str(leaves + 1)]
            link_faults = "".join(f",{name}={rate}" for name, rate in faults.items() if rate)
            for leaf in range(1, leaves + 1):
                ranks = ",".join(str(rank) for rank, switch in enumerate(self.switches) if switch == leaf)
                self.command += ["--link", f"{leaf}:{UPLINK}-0:{leaf - 1}{link_faults}"]
                self.command += ["--leaf", f"{leaf}-0:{ranks}"]

    def __enter__(self) -> "Emulator":
        with self.log.open("w") as log:  # a new session: Ctrl-C is for this process, which then stops the emulator
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
        """Wait until the switches are ready, and return for each worker the address of a port of its switch."""
        deadline = time.monotonic() + READY_S
        while not self.ready.exists():
            self.check()
            if time.monotonic() > deadline:
                raise LaunchError(f"the emulator was not ready after {READY_S} s: see {self.log}")
            time.sleep(0.05)
        ports = [
            [f"{port[0]}:{port[1]}" for port in switch["ports"] if port]
            for switch in json.loads(self.ready.read_text())["switches"]
        ]
        return [
            ports[switch][self.switches[:rank].count(switch) % len(ports[switch])]
            for rank, switch in enumerate(self.switches)
        ]

    def leaves(self, addresses: Sequence[str]) -> list[str]:
        """Return one of the workers' `addresses` at each leaf."""
        return list({switch: address for switch, address in zip(self.switches, addresses) if switch}.values())

    def check(self) -> None:
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
    arguments: Sequence[str] = (),
    engine: str = ENGINES[0],
) -> int:
    """Start the switches of a demo, run the demo, and return its exit code.

    Parameters
    ----------
    out, seed, faults, workers, leaves, arguments, engine
        As in `Emulator`.
    demo : Callable
        Is called with an address for each worker, the emulator and a console. It returns True if the demo succeeded.
    """
    console = Console(highlight=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (
            stop_on_signals(),
            Emulator(out, seed, faults, workers=workers, leaves=leaves, arguments=arguments, engine=engine) as emulator,
        ):
            with console.status("the switch is compiled and started (minutes the first time, then seconds) ..."):
                addresses = emulator.addresses()
            kind = "software" if engine == "software" else "emulated"
            switches = f"{leaves} {kind} leaves below a root listen" if leaves else f"the {kind} switch listens"
            rates = ", ".join(f"{name} {rate:g}" for name, rate in faults.items() if rate) or "no faults"
            console.print(f"{switches} at {', '.join(dict.fromkeys(addresses))}; {rates}", soft_wrap=True)
            return 0 if demo(addresses, emulator, console) else 1
    except (LaunchError, IswitchError, ValueError) as error:
        console.print(f"the demo failed: {error}", style="red", markup=False)
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        console.print(
            f"the demo failed: {error.filename} cannot be written: {error.strerror}. Choose another folder with --out",
            style="red",
            markup=False,
            soft_wrap=True,
        )
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


@contextmanager
def option_errors() -> Iterator[None]:
    """Report a ValueError within the `with` block as a wrong option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def application(main: Callable[..., None]) -> typer.Typer:
    """Return the command-line program of a demo."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    return app

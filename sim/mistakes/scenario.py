"""A switch in virtual time, programs at its ports that make a mistake, and the message that they receive."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from iswitch import Worker
from iswitch.config import Config
from sim.emulator.cluster import Cluster
from sim.emulator.compile import library
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program, ProgramTransport

__all__ = ["ADDRESS", "Mistake", "Process", "format_message", "run_scenario"]

ADDRESS = "127.0.0.1:27000"
"""The address in messages. The programs of a scenario are attached to the switch whatever the address is."""
KEY = 5
"""The key of programs that name none."""
LIMIT_S = 200.0
MACHINE = Machine()


class Mistake(NamedTuple):
    """A mistake of a user.

    Parameters
    ----------
    action : str
        What the user did, in Markdown.
    provoke : callable
        Makes the mistake, and returns the message.
    remedy : str
        What the user can do, in Markdown.
    """

    action: str
    provoke: Callable[[], str]
    remedy: str


@dataclass
class Process:
    """One process of the user, in virtual time.

    Parameters
    ----------
    program : Program
        The process, for the emulator.
    board : Board
        The switch.
    """

    program: Program
    board: Board

    def transport(self) -> ProgramTransport:
        """Return a new UDP socket of this machine."""
        return self.program.transport()

    def join(self, **options: Any) -> Worker:
        """Return a new Worker. Its collectives time out after 10 s, unless the options contain `timeout_s`."""
        return Worker(ADDRESS, transport=self.transport(), **{"timeout_s": 10, **options})

    def sleep(self, seconds: float) -> None:
        """Compute for a number of seconds of virtual time."""
        self.program.sleep(seconds)


class _ScenarioEnded(Exception):
    """Ends all programs of a scenario, because one of them has raised an exception."""


def format_message(error: Exception | Warning) -> str:
    """Return the last line of a traceback, or a warning as Python prints it."""
    return f"{type(error).__name__}: {error}"


def run_scenario(*programs: Callable[[Process], Any], machine: Machine = MACHINE) -> str:
    """Run programs at the ports of one switch until the first exception.

    Parameters
    ----------
    programs : callable
        Each runs as a process at a port of its own.
    machine : Machine
        The computers and their cables.

    Returns
    -------
    str
        The message of the first exception or, if there was none, of the first warning.

    Raises
    ------
    AssertionError
        If there was no message.
    """
    errors: list[str] = []
    warned: list[str] = []

    def listen(message: Warning | str, *_: Any, **__: Any) -> None:
        warned.append(format_message(message if isinstance(message, Warning) else UserWarning(message)))

    def run(work: Callable[[Process], Any], board: Board, program: Program) -> None:
        try:
            work(Process(program, board))
        except Exception as error:
            errors.append(format_message(error))
            raise _ScenarioEnded from error

    with (
        Board(path=_library()) as board,
        Fabric([board]) as fabric,
        warnings.catch_warnings(),
        patch("iswitch.control.job_key.process_key", lambda: KEY),
    ):
        warnings.simplefilter("always")
        warnings.showwarning = listen
        cluster = Cluster(fabric)
        for port, work in enumerate(programs):
            cluster.add((0, port), partial(run, work, board), name=f"process {port}", machine=machine)
        with suppress(_ScenarioEnded):
            cluster.run(LIMIT_S)
    if not errors + warned:
        raise AssertionError("there was no message")
    return (errors + warned)[0]


@cache
def _library() -> Path:
    return library(Config())

"""A switch in virtual time, at whose ports programs make a mistake, and the message that they get."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from iswitch import Worker
from iswitch.config import Config
from sim.emulator.cluster import Cluster
from sim.emulator.compile import library
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program, ProgramTransport

__all__ = ["ADDRESS", "Mistake", "Player", "message_of", "play"]

ADDRESS = "127.0.0.1:27000"
"""The address that messages name; the programs of a stage are at its ports in any case."""
LIMIT_S = 200.0
MACHINE = Machine()


class Mistake(NamedTuple):
    """A mistake of a user.

    did : str
        What the user did, in Markdown.
    make : callable
        Makes the mistake, and returns the message.
    helps : str
        What helps, in Markdown.
    """

    did: str
    make: Callable[[], str]
    helps: str


@dataclass
class Player:
    """A program on the stage: one process of the user. board: the switch."""

    program: Program
    board: Board

    def transport(self) -> ProgramTransport:
        """Return a new UDP socket of this machine."""
        return self.program.transport()

    def join(self, **options: Any) -> Worker:
        """Return a new Worker; collectives time out after 10 s unless the options say otherwise."""
        return Worker(ADDRESS, transport=self.transport(), **{"timeout_s": 10, **options})

    def sleep(self, seconds: float) -> None:
        """Compute for so many seconds of virtual time."""
        self.program.sleep(seconds)


class _End(Exception):
    """Ends all programs of a stage: one of them has got an exception."""


def message_of(error: Exception | Warning) -> str:
    """Return the last line of a traceback, or a warning as Python prints it."""
    return f"{type(error).__name__}: {error}"


def play(*parts: Callable[[Player], Any], machine: Machine = MACHINE) -> str:
    """Run programs at the ports of one switch, and return the message of the first exception in one of them, or else of
    the first warning.

    Parameters
    ----------
    parts : callable
        Each runs as a process of its own, at a port of its own.
    machine : Machine
        The computers and their cables.

    Raises
    ------
    AssertionError
        If there was no message.
    """
    errors: list[str] = []
    warned: list[str] = []

    def listen(message: Warning | str, *_: Any, **__: Any) -> None:
        warned.append(message_of(message if isinstance(message, Warning) else UserWarning(message)))

    def perform(part: Callable[[Player], Any], board: Board, program: Program) -> None:
        try:
            part(Player(program, board))
        except Exception as error:
            errors.append(message_of(error))
            raise _End from error

    with Board(path=_library()) as board, Fabric([board]) as fabric, warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = listen
        cluster = Cluster(fabric)
        for port, part in enumerate(parts):
            cluster.add((0, port), partial(perform, part, board), name=f"part {port}", machine=machine)
        with suppress(_End):
            cluster.run(LIMIT_S)
    if not errors + warned:
        raise AssertionError("there was no message")
    return (errors + warned)[0]


@cache
def _library() -> Path:
    return library(Config())

"""Starts the processes of a training on this machine, receives their messages, and ends all of them in any case."""

import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

import torch

from iswitch import IswitchError

__all__ = ["Crew", "Done", "LaunchError"]

_LOOK_S = 0.2
_GRACE_S = 5.0


class LaunchError(Exception):
    """The training could not be finished, or its result is wrong; the message says why."""


@dataclass(frozen=True)
class Done:
    """The last message of a process, with its result."""

    result: Any


@dataclass(frozen=True)
class _Failed:
    message: str


def _begin(work: Callable[..., None], arguments: tuple[Any, ...], parent: Connection) -> None:
    """Run `work` in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the launcher then ends the others
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)  # the processes share the cores; and one thread adds in one order
    try:
        work(*arguments, parent.send)
    except BrokenPipeError:
        sys.exit(1)  # the launcher is gone
    except (IswitchError, ValueError, TimeoutError) as error:
        parent.send(_Failed(str(error)))
    except Exception:
        parent.send(_Failed(traceback.format_exc()))


class Crew:
    """Processes by rank. At the end of a `with` all of them have ended.

    Parameters
    ----------
    preload : str
        Module with the work of the processes. It is imported once for all of them, and torch with it.
    """

    def __init__(self, preload: str) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([preload])
        self.processes: dict[int, BaseProcess] = {}
        self._connections: dict[int, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for the processes that are done. Terminate all others, and kill those that do not end."""
        for each in self.processes.values() if kind is None else ():
            each.join(_GRACE_S)
        for each in self.processes.values():
            each.terminate()
        deadline = time.monotonic() + _GRACE_S
        for each in self.processes.values():
            each.join(max(0.0, deadline - time.monotonic()))
            if each.is_alive():
                each.kill()
                each.join()

    def start(self, rank: int, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Start a process, in place of one at this rank that has died.

        Parameters
        ----------
        rank : int
            Rank of the process.
        name : str
            Names it in messages.
        work : Callable
            Is called as `work(*arguments, send)`. It may send messages, and its last one is a `Done`.
        arguments : Any
            Must be picklable.
        """
        if rank in self._connections:
            self._connections[rank].close()
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_begin, name=name, args=(work, arguments, theirs), daemon=True)
        process.start()
        theirs.close()
        self.processes[rank], self._connections[rank] = process, ours

    def run(
        self,
        watch: Callable[[], None],
        heard: Callable[[int, Any], None],
        died: Callable[[int, int | None], None] | None = None,
    ) -> list[Any]:
        """Wait until all processes are done, and return their results by rank.

        Parameters
        ----------
        watch : Callable[[], None]
            Is called several times a second. An exception of its ends the training.
        heard : Callable[[int, Any], None]
            Is called with the rank and each message before its `Done`.
        died : Callable[[int, int | None], None], optional
            Is called with the rank and the exit code of a process that ends without a `Done`. It starts another or
            raises.

        Raises
        ------
        LaunchError
            If a process reports a failure, or dies and there is no `died`.
        """
        done: dict[int, Any] = {}
        while len(done) < len(self.processes):
            watch()
            ranks = {connection: rank for rank, connection in self._connections.items() if rank not in done}
            for ready in wait(list(ranks), _LOOK_S):
                assert isinstance(ready, Connection)
                rank = ranks[ready]
                process = self.processes[rank]
                try:
                    message = ready.recv()
                except (EOFError, ConnectionResetError):
                    process.join(_GRACE_S)
                    watch()  # if the switch has gone too, that is the better explanation
                    if died is None:
                        raise LaunchError(f"{process.name} died (exit code {process.exitcode})") from None
                    died(rank, process.exitcode)
                    continue
                if isinstance(message, _Failed):
                    watch()
                    raise LaunchError(f"{process.name}: {message.message}")
                if isinstance(message, Done):
                    done[rank] = message.result
                else:
                    heard(rank, message)
        return [done[rank] for rank in sorted(done)]

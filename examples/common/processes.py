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

__all__ = ["Done", "LaunchError", "ProcessGroup"]

_POLL_S = 0.2
_GRACE_S = 5.0
"""Seconds that a process has to end by itself."""


class LaunchError(Exception):
    """The training could not be finished, or its result is wrong. The message says why."""


@dataclass(frozen=True)
class Done:
    """The last message of a process, with its result."""

    result: Any


@dataclass(frozen=True)
class _Failure:
    message: str


def _run_process(work: Callable[..., None], arguments: tuple[Any, ...], parent: Connection) -> None:
    """Run `work` in this process, and report its failure to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the launcher then ends the others
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)  # the processes share the cores, and one thread adds in a fixed order
    try:
        work(*arguments, parent.send)
    except BrokenPipeError:
        sys.exit(1)  # the launcher has ended
    except (IswitchError, ValueError, TimeoutError) as error:
        parent.send(_Failure(str(error)))
    except Exception:
        parent.send(_Failure(traceback.format_exc()))


class ProcessGroup:
    """Processes by rank. At the end of a `with` block all of them have ended.

    Parameters
    ----------
    preload : str
        Module that defines the work of the processes. It is imported once for all of them, and torch with it.
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
        for process in self.processes.values() if kind is None else ():
            process.join(_GRACE_S)
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for process in self.processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def start(self, rank: int, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Start a process. It replaces an earlier process of this rank that has died.

        Parameters
        ----------
        rank : int
            Rank of the process.
        name : str
            Name of the process in messages.
        work : Callable
            Is called as `work(*arguments, send)`. `send` sends a message to the launcher; the last one is a `Done`.
        arguments : Any
            Picklable arguments.
        """
        if rank in self._connections:
            self._connections[rank].close()
        connection, child = self.context.Pipe()
        process = self.context.Process(target=_run_process, name=name, args=(work, arguments, child), daemon=True)
        process.start()
        child.close()
        self.processes[rank], self._connections[rank] = process, connection

    def run(
        self,
        check: Callable[[], None],
        on_message: Callable[[int, Any], None],
        on_death: Callable[[int, int | None], None] | None = None,
    ) -> list[Any]:
        """Wait until all processes are done, and return their results by rank.

        Parameters
        ----------
        check : Callable[[], None]
            Is called several times a second. If it raises an exception, the training ends.
        on_message : Callable[[int, Any], None]
            Is called with the rank and each message before its `Done`.
        on_death : Callable[[int, int | None], None], optional
            Is called with the rank and the exit code of a process that ends without a `Done`. It starts another
            process or raises an exception.

        Raises
        ------
        LaunchError
            If a process reports a failure, or if a process dies and there is no `on_death`.
        """
        results: dict[int, Any] = {}
        while len(results) < len(self.processes):
            check()
            ranks = {connection: rank for rank, connection in self._connections.items() if rank not in results}
            for ready in wait(list(ranks), _POLL_S):
                assert isinstance(ready, Connection)
                rank = ranks[ready]
                process = self.processes[rank]
                try:
                    message = ready.recv()
                except (EOFError, ConnectionResetError):
                    process.join(_GRACE_S)
                    check()  # if the switch has ended too, that is the better explanation
                    if on_death is None:
                        raise LaunchError(f"{process.name} died (exit code {process.exitcode})") from None
                    on_death(rank, process.exitcode)
                    continue
                if isinstance(message, _Failure):
                    check()
                    raise LaunchError(f"{process.name}: {message.message}")
                if isinstance(message, Done):
                    results[rank] = message.result
                else:
                    on_message(rank, message)
        return [results[rank] for rank in sorted(results)]

"""SIGTERM: a process leaves its jobs before SIGTERM ends it.

Schedulers end a process by SIGTERM (torchrun, Slurm, `docker stop`). Python then runs no `finally` and no exit
function, unless the program has a handler for the signal. A program's own handler, set before or after a worker is
made, stays in place and decides alone: a worker leaves its job at the end of its `with` block or of the interpreter. A
handler that calls the handler before it makes the workers leave.
"""

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["call_before_termination"]

_goodbyes: dict[
    int, tuple[int, Callable[[], object]]
] = {}  # by a number of their own: the process that they belong to, and they
_numbers = itertools.count()


def call_before_termination(goodbye: Callable[[], object]) -> Callable[[], None]:
    """Arrange that `goodbye` is called before SIGTERM ends this process. Does nothing outside of the main thread,
    because only the main thread may set a handler, and nothing if the program has set a handler of its own.

    Parameters
    ----------
    goodbye : callable
        Must come to an end by itself. Its exceptions are dropped. A forked child does not call it.

    Returns
    -------
    callable
        Takes the arrangement back; with the last one the signal has its default action again.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) not in (
        signal.SIG_DFL,
        _terminate,
    ):
        return lambda: None
    number = next(_numbers)
    _goodbyes[number] = os.getpid(), goodbye
    signal.signal(signal.SIGTERM, _terminate)
    return lambda: _forget(number)


def _forget(number: int) -> None:
    _goodbyes.pop(number, None)
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _terminate
    if ours and not _goodbyes:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: say goodbye, then end the process by the signal's default action. A second SIGTERM ends the
    process at once."""
    called_by_another = signal.getsignal(signal.SIGTERM) is not _terminate
    if not called_by_another:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for owner_pid, goodbye in list(_goodbyes.values()):
        if owner_pid == os.getpid():
            with contextlib.suppress(Exception):
                goodbye()
    if not called_by_another:
        os.kill(os.getpid(), signal.SIGTERM)

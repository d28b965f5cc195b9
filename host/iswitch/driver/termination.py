"""SIGTERM: a process leaves its jobs, and closes its replay sessions, before the signal ends it.

Schedulers end a process by SIGTERM (torchrun, Slurm, `docker stop`). Python then runs no `finally` and no exit
function, unless the program has a handler for the signal. If a program sets its own handler, before or after it makes a
worker, that handler alone decides: the worker leaves its job at the end of its `with` block or of the interpreter. If
that handler calls the handler before it, the workers leave.
"""

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["call_before_termination"]

_callbacks: dict[int, tuple[int, Callable[[], object]]] = {}
"""By a number: the process that a callback belongs to, and the callback."""
_numbers = itertools.count()


def call_before_termination(callback: Callable[[], object]) -> Callable[[], None]:
    """Call a function before SIGTERM ends this process.

    The function does nothing outside of the main thread, because only the main thread may set a handler, and nothing if
    the program has its own handler.

    Parameters
    ----------
    callback : callable
        Comes to an end by itself. Its exceptions are dropped. A forked child does not call it.

    Returns
    -------
    callable
        Cancels the call. The last cancellation restores the signal's default action.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) not in (
        signal.SIG_DFL,
        _terminate,
    ):
        return lambda: None
    number = next(_numbers)
    _callbacks[number] = os.getpid(), callback
    signal.signal(signal.SIGTERM, _terminate)
    return lambda: _cancel(number)


def _cancel(number: int) -> None:
    _callbacks.pop(number, None)
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _terminate
    if ours and not _callbacks:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: call all callbacks, then end the process by the signal's default action.

    A second SIGTERM ends the process at once. A program's own handler may have called this one; then only the callbacks
    are called.
    """
    called_by_program = signal.getsignal(signal.SIGTERM) is not _terminate
    if not called_by_program:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for owner_pid, callback in list(_callbacks.values()):
        if owner_pid == os.getpid():
            with contextlib.suppress(Exception):
                callback()
    if not called_by_program:
        os.kill(os.getpid(), signal.SIGTERM)

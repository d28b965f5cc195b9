"""Calls of a worker that run one after another in a thread of their own, while the program computes."""

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from iswitch.caller_warning import ProgramLine, on_behalf_of, program_line

__all__ = ["CallQueue"]

T = TypeVar("T")


class CallQueue:
    """Runs calls in the order in which they are made.

    The thread begins with the first call. A worker whose program always waits has none.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._last: Future[Any] | None = None

    def submit(self, call: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Make a call after all earlier ones, and return at once.

        A call that an earlier one makes, for example in the callback of its future, runs at once: behind the others it
        would wait for itself. All workers then make it at the same place, whatever their programs have submitted.
        """
        if self._thread == threading.get_ident():
            done: Future[T] = Future()
            try:
                done.set_result(call(*arguments))
            except Exception as error:
                done.set_exception(error)
            return done
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "iswitch-collectives", self._begin)
        self._last = future = self._executor.submit(self._call, program_line(), call, *arguments)
        return future

    @staticmethod
    def _call(line: ProgramLine, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call in this object's thread. Its warnings name the line of the program that submitted the call."""
        with on_behalf_of(line):
            return call(*arguments)

    def _begin(self) -> None:
        self._thread = threading.get_ident()

    def wait(self) -> None:
        """Wait until all earlier calls have ended. In such a call itself, return at once."""
        if self._last is not None and self._thread != threading.get_ident():
            concurrent.futures.wait([self._last])

    def close(self) -> None:
        """Take no more calls. Those that wait are made, and find that the worker is closed."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)

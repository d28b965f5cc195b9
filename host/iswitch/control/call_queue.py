"""Calls of a worker that run one after another in a thread of their own, while the program computes."""

import concurrent.futures
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from iswitch.caller_warning import on_behalf_of, program_line

__all__ = ["CallQueue"]

_JOIN_S = 5.0
"""The longest wait for a thread at the interpreter's exit."""
_threads: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()

T = TypeVar("T")
Item = tuple["Future[Any]", Callable[[], Any]]


def _make_call(future: "Future[Any]", call: Callable[[], Any]) -> None:
    """Make a call, and put its result or its error into its future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)


def _run(calls: "SimpleQueue[Item | None]") -> None:
    """Make the calls of a queue until None comes. No reference to a call remains while the thread waits."""
    while item := calls.get():
        _make_call(*item)
        del item


def _join_threads() -> None:
    """Wait until all threads have ended.

    A future wakes the program before it makes its callbacks. If the interpreter ended while the thread is in one of
    torch, the process would abort.
    """
    for thread in list(_threads):
        thread.join(_JOIN_S)


class _Module:
    """Stands for this module, since a module cannot have a finalizer."""


_MODULE = _Module()
# At exit, finalizers run in the opposite order of their creation. So this one comes after those of all workers, which
# end the calls in progress, and after those of all queues, which end the threads.
weakref.finalize(_MODULE, _join_threads)


class CallQueue:
    """Runs calls in the order in which they are made.

    The thread begins with the first call. A worker whose program always waits has none. At the end of the interpreter
    the exit handler of the worker ends the call in progress, and then the thread ends.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Item | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Future[Any] | None = None
        self._end = weakref.finalize(self, self._calls.put, None)

    def submit(self, call: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Make a call after all earlier ones, and return at once.

        A call that an earlier one makes, for example in the callback of its future, runs at once: behind the others it
        would wait for itself. All workers then make it at the same place, whatever their programs have submitted. After
        `close`, a call runs at once, too, and finds that the worker is closed.
        """
        line, future = program_line(), Future[T]()

        def call_for_the_program() -> T:  # its warnings name the line of the program that submitted it
            with on_behalf_of(line):
                return call(*arguments)

        if self._is_own_thread() or not self._end.alive:
            _make_call(future, call_for_the_program)
            return future
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._calls,), name="iswitch-collectives", daemon=True)
            _threads.add(self._thread)
            self._thread.start()
        self._last = future
        self._calls.put((future, call_for_the_program))
        return future

    def _is_own_thread(self) -> bool:
        return self._thread is not None and self._thread is threading.current_thread()

    def wait(self) -> None:
        """Wait until all earlier calls have ended. In such a call itself, return at once."""
        if self._last is not None and not self._is_own_thread():
            concurrent.futures.wait([self._last])

    def close(self) -> None:
        """Take no more calls. Those that wait are made, and find that the worker is closed."""
        self._end()

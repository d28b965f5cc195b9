"""A thread that serves a worker between collectives, while the program computes."""

import contextlib
import errno
import os
import select
import threading
from collections.abc import Callable

from iswitch.errors import ClosedError, IswitchError

__all__ = ["KeepaliveThread", "release_all"]

_STOP_S = 1.0
"""The longest wait for the thread's end. The thread does not hold the lock for longer, unless a signal handler
interrupts the interpreter in the middle of it."""
_LOCK_POLL_S = 0.1
_RETRY_S = 0.1
_SUSPENDED_S = 0.01
"""The shortest pause of a suspended thread whose time is over. No call between collectives is more urgent than that."""


def release_all(lock: threading.RLock) -> None:
    """Release a lock as often as this thread has acquired it."""
    try:
        while True:
            lock.release()
    except RuntimeError:  # the thread no longer has the lock
        pass


class KeepaliveThread:
    """Calls a function when a datagram has come, or when the time that the function has returned is over.

    `with keepalive:` suspends the thread, so that it costs a collective next to nothing. Where there is epoll, the
    socket leaves the epoll set, so that no datagram wakes the thread. If the thread's time is over meanwhile, it wakes
    up, cannot serve, and sleeps again for `_SUSPENDED_S` or longer. Where there is no epoll, the thread waits for the
    lock.

    A forked child has no such thread: there, `with keepalive:` and `stop` do nothing.

    An error of the function does not end the thread, which calls the function again after `_RETRY_S`. If the error
    persists, the next collective raises it.

    Parameters
    ----------
    descriptor : int
        Descriptor of the socket.
    serve : callable
        Returns the seconds to its next call, at the latest.
    """

    def __init__(self, descriptor: int, serve: Callable[[], float]):
        self._descriptor, self._serve = descriptor, serve
        self._lock = threading.RLock()
        self._stopped = False
        self._owner_pid = os.getpid()
        self._wake_read, self._wake_write = os.pipe()
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll:
            self._epoll.register(self._wake_read, select.EPOLLIN)
            self._epoll.register(descriptor, 0)
        self._watch_socket(True)
        self._thread = threading.Thread(target=self._run, name="iswitch-keepalive", daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        # A signal handler may raise an exception before the `with` block begins, or in `__exit__`. Then the lock stays
        # taken, and this thread's next `with` takes it again.
        if self._is_inherited:  # the thread may have held the lock at the fork, and the epoll set is the parent's
            return
        self._lock.acquire()
        self._watch_socket(False)

    def __exit__(self, *_: object) -> None:
        if self._is_inherited:
            return
        self._watch_socket(True)
        release_all(self._lock)

    @property
    def _is_inherited(self) -> bool:
        return os.getpid() != self._owner_pid

    def _watch_socket(self, on: bool) -> None:
        if self._epoll and not self._epoll.closed:
            events = select.EPOLLIN if on else 0
            try:
                self._epoll.modify(self._descriptor, events)
            except FileNotFoundError:  # the transport has a new socket behind the descriptor
                self._epoll.register(self._descriptor, events)
            except (OSError, ValueError):
                if not self._stopped:  # else another thread has just closed one of the two
                    raise

    def _wait(self, timeout_s: float) -> None:
        if self._epoll:
            self._epoll.poll(timeout_s)
        else:
            select.select([self._descriptor, self._wake_read], [], [], timeout_s)

    def _run(self) -> None:
        wait_s = 0.0
        with contextlib.suppress(OSError, ValueError):  # the descriptors were closed
            while not self._stopped:
                self._wait(wait_s)
                if self._epoll and not self._lock.acquire(blocking=False):
                    wait_s = max(wait_s, _SUSPENDED_S)  # a collective is in progress, and leaves nothing to do
                    continue
                if not self._epoll and not self._lock.acquire(timeout=_LOCK_POLL_S):
                    continue  # the same; and the thread that holds the lock may have called `stop`
                try:
                    wait_s = _RETRY_S if self._stopped else self._serve()
                except ClosedError:
                    return
                except (OSError, ValueError, IswitchError) as error:
                    if isinstance(error, OSError) and error.errno == errno.EBADF:
                        return  # the transport was closed
                    wait_s = _RETRY_S
                finally:
                    self._lock.release()

    def stop(self) -> None:
        """End the thread, also if the caller has suspended it, and wait for its end. Close the transport afterwards,
        not before."""
        if self._stopped or self._is_inherited:  # the pipe would wake the parent's thread for ever
            return
        self._stopped = True
        os.write(self._wake_write, b"!")
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                return  # a signal handler calls this in the middle of something that the thread waits for
        if self._epoll:
            self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

"""The thread that looks after a ring between collectives."""

import errno
import os
import select
import threading
import time

import pytest

from iswitch import SwitchUnreachableError
from iswitch.driver.keepalive import KeepaliveThread


@pytest.fixture
def descriptor():
    read, write = os.pipe()
    yield read
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    "error",
    [SwitchUnreachableError("no route"), OSError(errno.ENOMEM, "no memory"), ValueError("does not fit the MTU")],
)
def test_an_error_does_not_end_the_thread(descriptor, error):
    calls, again = [], threading.Event()

    def serve():
        calls.append(1)
        if len(calls) < 3:
            raise error
        again.set()
        return 1.0

    keepalive = KeepaliveThread(descriptor, serve)
    assert again.wait(30) and keepalive._thread.is_alive()
    keepalive.stop()


def test_a_closed_transport_ends_the_thread(descriptor):
    def serve():
        raise OSError(errno.EBADF, "closed")

    keepalive = KeepaliveThread(descriptor, serve)
    keepalive._thread.join(30)
    assert not keepalive._thread.is_alive()
    keepalive.stop()


@pytest.mark.parametrize("on", [False, True], ids=["at the beginning", "at the end"])
def test_a_signal_handlers_exception_in_the_middle_leaves_the_thread_usable(descriptor, monkeypatch, on):
    """The handler runs while the lock is taken, and the `with` block has not begun or has ended."""
    served = threading.Event()
    keepalive = KeepaliveThread(descriptor, lambda: served.set() or 0.01)
    watch = keepalive._watch_socket

    def interrupted(watched):
        watch(watched)
        if watched == on:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keepalive, "_watch_socket", interrupted)
        with pytest.raises(KeyboardInterrupt), keepalive:
            pass
    with keepalive:
        pass
    served.clear()
    assert served.wait(30)
    keepalive.stop()


@pytest.mark.parametrize("has_epoll", [True, False])
def test_the_thread_rests_while_a_collective_takes_the_lock_first(descriptor, monkeypatch, has_epoll):
    """A collective begins at the moment at which the thread is due: the thread cannot serve, and must not spin."""
    if not has_epoll:
        monkeypatch.delattr(select, "epoll")
    waits, served = [], threading.Event()

    class Counting(KeepaliveThread):
        def _wait(self, timeout_s):
            waits.append(timeout_s)
            super()._wait(timeout_s)

    keepalive = Counting(descriptor, lambda: served.set() or 0.0)  # due at once, again and again
    assert served.wait(30)
    with keepalive:
        before = len(waits)
        time.sleep(0.2)  # a slow machine counts fewer polls, so only a spinning thread can fail
        assert len(waits) - before < 30
    served.clear()
    assert served.wait(30)  # the thread serves again when the collective is over
    keepalive.stop()

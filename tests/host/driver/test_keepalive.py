"""The thread that looks after a ring between collectives."""

import errno
import os
import threading

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

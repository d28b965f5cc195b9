"""The thread that looks after a ring between collectives."""

import errno
import os
import threading

import pytest

from iswitch import SwitchUnreachableError
from iswitch.driver.keepalive import Attendant


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

    def tend():
        calls.append(1)
        if len(calls) < 3:
            raise error
        again.set()
        return 1.0

    attendant = Attendant(descriptor, tend)
    assert again.wait(30) and attendant._thread.is_alive()
    attendant.stop()


def test_a_closed_transport_ends_the_thread(descriptor):
    def tend():
        raise OSError(errno.EBADF, "closed")

    attendant = Attendant(descriptor, tend)
    attendant._thread.join(30)
    assert not attendant._thread.is_alive()
    attendant.stop()

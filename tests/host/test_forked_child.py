"""A forked child cannot use its parent's worker or replay client, and what it does leaves them as they are."""

import os
import select
import signal
import sys
import threading
import traceback

import numpy as np
import pytest

from iswitch import AsyncWorker, ClosedError, NotAMemberError
from iswitch.config import Config, Replay
from iswitch.driver.keepalive import KeepaliveThread
from iswitch.replay import Field, ReplayClient
from sim.bench.udp_model import UdpModel

SMALL = Config(ports=2, window=4, elements=16, members=4, replay=Replay(capacity=64, log_bytes=4096))
SPEC = {"x": Field((), np.float32)}


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


def in_child(work):
    """Call a function in a forked child. Return the exit status: 0, or that of `sys.exit`, or 1 after an error."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(30)  # a child that hangs is an error, too
    status = 1
    try:
        work()
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def extend(client, value):
    return client.extend({"x": np.full(5, value, np.float32)})


CALLS = {
    "extend": lambda client: extend(client, 100.0).items,
    "sample": lambda client: client.sample(4),
    "update_priority": lambda client: client.update_priority([64], [2.0]),
    "flush": lambda client: client.flush(),
    "poll": lambda client: client.poll(),
    "count_items": lambda client: client.count_items(),
    "reopen": lambda client: client.reopen(),
}


def test_a_child_cannot_use_the_replay_client_and_the_parents_items_are_those_of_its_handles(model):
    with ReplayClient(model.address(), SPEC) as client:
        assert len(extend(client, 1.0).items) == 5

        def child():
            for call in CALLS.values():
                with pytest.raises(ClosedError, match=f"belongs to process {os.getppid()}, and this is its child"):
                    call(client)

        assert in_child(child) == 0
        handles = extend(client, 7.0).items
        batch = client.fifo(10).read(10)
        stored = dict(zip(batch.items.tolist(), batch.data["x"].tolist()))
        assert [stored[handle] for handle in handles.tolist()] == [7.0] * 5
        assert client.statistics().adds == 10


@pytest.mark.parametrize("served", [False, True], ids=["alone", "with a keep-alive thread"])
def test_a_child_that_leaves_the_with_block_leaves_the_session_open(model, served):
    with ReplayClient(model.address(), SPEC) as client:
        keepalive = client.start_keepalive() if served else None
        extend(client, 1.0)  # waits in both processes, and only the parent sends it

        def child():
            with client:
                if keepalive:
                    keepalive.stop()
                sys.exit(3)

        assert in_child(child) == 3
        if keepalive:
            keepalive.stop()
        client.flush()
        assert client.statistics().adds == 5
    assert not any(session.open for session in model.switch.service.sessions)  # the parent's own end closes it


def test_a_child_cannot_use_an_asynchronous_worker_and_leaves_it_in_its_job(model):
    with AsyncWorker(model.address(), world=1, size=8) as worker:

        def pushes_update(number):
            worker.push(np.ones(8, np.float32))
            return worker.wait(30) and [update.number for update in worker.updates()] == [number]

        # numpy imports parts of itself at their first use. A fork during such an import in the worker's thread leaves
        # the child with a lock that no thread of its own releases.
        assert pushes_update(0)

        def child():
            for call in (lambda: worker.push(np.ones(8, np.float32)), worker.wait, lambda: list(worker.updates())):
                with pytest.raises(NotAMemberError, match="is its child: make a AsyncWorker in each process"):
                    call()
            with worker:
                sys.exit(3)

        assert in_child(child) == 3
        assert pushes_update(1)
        assert worker.close()


def test_a_child_that_stops_the_keepalive_thread_does_not_keep_the_parents_awake():
    read, write = os.pipe()
    keepalive = KeepaliveThread(read, lambda: 1.0)
    assert in_child(keepalive.stop) == 0
    assert not select.select([keepalive._wake_read], [], [], 0)[0]
    keepalive.stop()
    os.close(read)
    os.close(write)


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have():
    """The thread is in a call, and so has the lock, when the process forks."""
    read, write = os.pipe()
    called, goes_on = threading.Event(), threading.Event()

    def serve():
        called.set()
        goes_on.wait(30)
        return 1.0

    keepalive = KeepaliveThread(read, serve)
    assert called.wait(30)

    def child():
        signal.alarm(5)
        with keepalive:
            pass

    assert in_child(child) == 0
    goes_on.set()
    keepalive.stop()
    os.close(read)
    os.close(write)

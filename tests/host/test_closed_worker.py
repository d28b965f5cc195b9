"""`close` in the middle of a call: the call raises ClosedError, the worker leaves its job, and nothing hangs."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import AsyncWorker, ClosedError, NotAMemberError, Worker
from iswitch.config import Config, Replay
from iswitch.driver.claims import PIPELINE_DEPTH
from iswitch.replay import Field, ReplayClient
from sim.bench.udp_model import UdpModel

SMALL = Config(ports=4, window=4, elements=16, members=8, replay=Replay(capacity=64, log_bytes=4096))


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


def has_contributed(_, switch):
    return switch.counters()["outcome.ADDED"]


def push_and_wait(worker):
    worker.push(np.ones(8, np.float32))
    worker.wait()


def push_more_than_the_pipeline_holds(worker):
    for _ in range(PIPELINE_DEPTH + 1):
        worker.push(np.ones(8, np.float32))


CALLS = {
    "allreduce": (Worker, lambda worker: worker.allreduce(np.ones(100, np.float32)), has_contributed),
    "barrier": (Worker, lambda worker: worker.barrier(), has_contributed),
    "sync_state": (Worker, lambda worker: worker.sync_state(np.ones(100), 1), has_contributed),
    "wait": (AsyncWorker, push_and_wait, lambda worker, _: worker._stream.claims.pending),
    "push": (
        AsyncWorker,
        push_more_than_the_pipeline_holds,
        lambda worker, _: worker._stream.claims.pending == PIPELINE_DEPTH,
    ),
}
"""By name: the kind of worker, a call that waits for another worker, and whether the worker waits in it."""


@pytest.mark.parametrize(("kind", "call", "waits"), CALLS.values(), ids=CALLS)
def test_close_in_another_thread_ends_the_call_in_progress(model, kind, call, waits):
    """The other worker does not take part, so the call cannot end by itself."""

    options = {"size": 8} if kind is AsyncWorker else {}

    def join(rank):
        return kind(model.address(rank), world=2, rank=rank, evict_s=0, **options)

    with ThreadPoolExecutor(3) as pool:
        worker, other = pool.map(join, range(2))
        called = pool.submit(call, worker)
        model.until(lambda switch: waits(worker, switch))
        closed = list(pool.map(lambda _: worker.close(), range(2), timeout=60))
        with pytest.raises(ClosedError, match=rf"closed this worker of job 0 at .*make a new {kind.__name__}"):
            called.result(timeout=60)
        assert sorted(closed) == [False, True]  # one of the two calls has left the job, the other did nothing
        assert worker.close() is False
        assert model.switch.jobs[0].live == 0b10
        with pytest.raises(ClosedError):
            call(worker)
        other.close()


def test_close_in_a_signal_handler_ends_the_collective_that_it_interrupts(model):
    with ThreadPoolExecutor(2) as pool:
        joined = pool.submit(Worker, model.address(1), world=2, rank=1)
        worker = Worker(model.address(0), world=2, rank=0)
        other = joined.result(timeout=60)
        closed = []
        before = signal.signal(signal.SIGUSR1, lambda *_: closed.append(worker.close()))

        def interrupt():
            model.until(lambda switch: has_contributed(worker, switch))
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

        try:
            interrupted = pool.submit(interrupt)
            with pytest.raises(ClosedError, match="make a new Worker"):
                worker.allreduce(np.ones(100, np.float32))
            interrupted.result(timeout=60)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert closed == [True] and model.switch.jobs[0].live == 0b10
        other.close()


def test_close_in_another_thread_ends_rejoin(model):
    """The worker waits for the other one, which does not come back."""
    with ThreadPoolExecutor(2) as pool:
        worker, other = pool.map(lambda rank: Worker(model.address(rank), world=2, rank=rank), range(2))
        other.close()
        worker._control.leave(worker._ring.membership)
        with pytest.raises(NotAMemberError):
            worker.barrier()
        called = pool.submit(worker.rejoin)
        model.until(lambda switch: switch.jobs[0].live)
        worker.close()
        with pytest.raises(ClosedError):
            called.result(timeout=60)
        assert model.switch.jobs[0].live == 0


def test_close_in_another_thread_ends_a_call_of_a_replay_client(model):
    with ThreadPoolExecutor(1) as pool:
        client = ReplayClient(model.address(), {"a": Field((), np.int32)})
        called = pool.submit(client.sample, 4, min_adds=100)
        model.until(lambda switch: switch.counters()["replay.ITEMS"])
        client.close()
        with pytest.raises(ClosedError, match=r"closed its session.*make a new ReplayClient"):
            called.result(timeout=60)
        client.close()
        assert not any(session.open for session in model.switch.service.sessions)
        with pytest.raises(ClosedError):
            client.sample(4)

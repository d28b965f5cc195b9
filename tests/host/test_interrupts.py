"""A program that catches KeyboardInterrupt, or the exception of an alarm, in the middle of a call, and goes on."""

import itertools
import re

import numpy as np
import pytest

from iswitch import AsyncWorker, IswitchError, Worker
from iswitch.config import Config
from sim.bench.interrupts import interrupted
from sim.bench.udp_model import UdpModel

SMALL = Config(ports=2, window=4, elements=16, members=4)
SIZE = 20
TORN = "stopped this worker of job 0 .* in the middle of a message.*call `close`, and make a new AsyncWorker"


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


def push(worker, value):
    worker.push(np.full(SIZE, value, np.float32))


def test_an_exception_at_any_place_of_updates_neither_loses_an_update_nor_returns_one_twice(model):
    """`updates` is only read here: what comes is received before. So all places must be harmless."""
    taken = []

    def take(worker):
        for update in worker.updates():
            taken.append((update.number, update.sum[0], update.sum[-1]))

    with AsyncWorker(model.address(), world=1, size=SIZE) as worker:
        worker._serve_stream = lambda wait_s, serve=worker._serve_stream: 1.0 if reads_only else serve(wait_s)
        for place in itertools.count():
            reads_only = False
            for k in range(2):
                push(worker, 2 * place + k)
                while worker._stream.updates_ready <= k:
                    assert worker.wait(30)
                    with worker._keepalive:
                        worker._serve_stream(0.01)
            reads_only = True
            reached = interrupted(lambda: take(worker), place)
            take(worker)
            assert taken[-2:] == [(number, number, number) for number in (2 * place, 2 * place + 1)]
            if not reached:
                break
        assert len(taken) == worker.version and worker.confirmed_updates() == {0: worker.version}
    assert place > 60


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops it in a finalizer
def test_an_exception_at_any_place_of_push_and_wait_leaves_right_updates_or_a_clear_error(model):
    """Each vector has another value, so a sum shows which vectors are in it."""
    messages = []

    def call():
        push(worker, value)
        worker.wait(30)

    place, reached, value = 0, True, 0
    while reached:
        taken = []
        with AsyncWorker(model.address(), world=1, size=SIZE) as worker:
            try:
                while reached:
                    value, place = value + 1, place + 3
                    reached = interrupted(call, place)
                    push(worker, -value)
                    while -value not in [each for _, each in taken]:
                        assert worker.wait(30)
                        taken += [(update.number, update.sum[0]) for update in worker.updates()]
            except IswitchError as error:
                messages.append(str(error))
        numbers, values = [number for number, _ in taken], [each for _, each in taken]
        assert numbers == list(range(len(numbers))) and len(set(values)) == len(values)
        assert sorted(map(abs, values)) == list(map(abs, values))
    assert place > 100 and messages and all(re.search(TORN, message) for message in messages)


def test_a_sum_that_is_in_place_counts_although_an_exception_ends_its_call(model):
    """The program goes on with its next step. Only an exception at the begin of `count_call` itself prevents that, and
    the next sum is then refused as one of another step."""
    uncounted = []
    for place in itertools.count():
        with Worker(model.address(), world=1, rank=0) as worker:
            position = worker._ring.progress.position
            reached = interrupted(lambda: worker.allreduce(np.ones(SIZE, np.float32)), place)
            if worker._ring.segments and worker._ring.progress.position == position:
                uncounted.append(place)
        if not reached:
            break
    assert place > 100 and len(uncounted) <= 1

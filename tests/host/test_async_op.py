"""Collectives that do not wait: `allreduce(async_op=True)`."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import ClosedError, CollectiveTimeoutError, IswitchError, Worker
from iswitch.config import Config
from sim.bench.udp_model import Faults, UdpModel

SMALL = Config(ports=4, window=4, elements=16, members=8)


@pytest.fixture(params=[Faults(), Faults(loss=0.05, duplication=0.05, reordering=0.05)], ids=["sound", "bad network"])
def model(request):
    with UdpModel(SMALL, faults=request.param) as made:
        yield made


def together(model, world, body, **options):
    """`body(worker)` for each rank in a thread; what they return, by rank, or the first error."""

    def run(rank):
        with Worker(model.address(rank % 4), rank=rank, world=world, evict_s=5.0, **options) as worker:
            return body(worker)

    with ThreadPoolExecutor(world) as pool:
        return [future.result(timeout=60) for future in [pool.submit(run, rank) for rank in range(world)]]


def test_several_in_flight_give_the_sums_of_one_after_another(model):
    sizes = (1, 16, 17, 200, 0, 65)
    vectors = np.random.default_rng(1).integers(-99, 99, (3, max(sizes))).astype(np.float32)

    def body(worker):
        arrays = [vectors[worker.rank, :size].copy() for size in sizes]
        futures = [worker.allreduce(array, "sum", async_op=True) for array in arrays]
        counts = [future.result(timeout=30).counts for future in futures]
        assert all((count == 3).all() for count in counts)
        return arrays

    for arrays in together(model, 3, body):
        for size, array in zip(sizes, arrays, strict=True):
            np.testing.assert_array_equal(array, vectors[:, :size].sum(axis=0))


def test_a_call_that_waits_comes_after_those_that_do_not(model):
    """Were the order another one on one rank, the collectives of the ranks would differ in their kind and size."""

    def body(worker):
        for _ in range(5):
            first, second = np.ones(100, np.float32), np.ones(3, np.float32)
            future = worker.allreduce(first, async_op=True)
            worker.barrier()
            assert future.done()
            other = worker.allreduce(first, async_op=True)
            worker.allreduce(second)
            state = worker.broadcast(bytes([worker.rank]) * 9, root=1)
            assert other.done() and state == bytes([1]) * 9
            assert (first == 4).all() and (second == 2).all()

    together(model, 2, body)


def test_a_list_that_is_filled_anew_after_the_call_is_summed_as_it_was(model):
    """As a program does that collects gradients into buckets."""

    def body(worker):
        gradients, bucket, futures = [np.full(20, n, np.float32) for n in range(6)], [], []
        for gradient in gradients:
            bucket.append(gradient)
            if len(bucket) == 2:
                futures.append(worker.allreduce(bucket, async_op=True))
                bucket.clear()
        for future in futures:
            future.result(timeout=30)
        return [gradient.tolist() for gradient in gradients]

    assert together(model, 2, body) == [[[2.0 * n] * 20 for n in range(6)]] * 2


def test_a_callback_may_call_a_collective_and_wait_for_it(model):
    """As PowerSGD does, a communication hook of torch."""

    def body(worker):
        sums = []

        def callback(_):
            nested = np.ones(20, np.float32)
            worker.allreduce(nested, async_op=True).result(timeout=5)
            sums.append(nested[0])

        array = np.ones(3, np.float32)
        worker.allreduce(array, async_op=True).add_done_callback(callback)
        worker.allreduce(array, async_op=True)
        worker.barrier()
        return sums

    assert together(model, 2, body) == [[2.0]] * 2


def test_the_program_goes_on_while_another_worker_computes(model):
    computed = threading.Event()

    def body(worker):
        array = np.full(50, worker.rank + 1, np.float32)
        if worker.rank:
            assert computed.wait(30)
            worker.allreduce(array)
        else:
            future = worker.allreduce(array, async_op=True)
            assert not future.done()
            computed.set()
            future.result(timeout=30)
        assert (array == 3).all()

    together(model, 2, body)


def test_after_an_error_the_collectives_behind_it_fail_too(model):
    failed = threading.Event()

    def body(worker):
        if worker.rank:
            assert failed.wait(30)
            return
        first, second = [worker.allreduce(np.ones(40, np.float32), async_op=True) for _ in range(2)]
        with pytest.raises(CollectiveTimeoutError):
            first.result(timeout=30)
        with pytest.raises(IswitchError, match="an earlier collective failed"):
            second.result(timeout=30)
        failed.set()

    together(model, 2, body, timeout_s=0.5)


def test_close_ends_what_is_in_flight_with_a_clear_error(model):
    closed = threading.Event()

    def body(worker):
        if worker.rank:
            assert closed.wait(30)
            return
        futures = [worker.allreduce(np.ones(40, np.float32), async_op=True) for _ in range(3)]
        worker.close()
        for future in futures:
            with pytest.raises(ClosedError):
                future.result(timeout=30)
        closed.set()

    together(model, 2, body)


def test_a_wrong_array_is_reported_by_the_future(model):
    def body(worker):
        with pytest.raises(TypeError):
            worker.allreduce("no array", async_op=True).result(timeout=30)

    together(model, 1, body)


def test_a_program_that_ends_with_an_error_does_not_wait_for_a_pending_collective():
    """The other worker never contributes. The process leaves its job at its end, as after a collective that waits."""
    script = (
        "import sys, numpy, iswitch\n"
        "worker = iswitch.Worker(sys.argv[1], rank=0, world=2, key=7, evict_s=0)\n"
        "worker.allreduce(numpy.ones(40, numpy.float32), async_op=True)\n"
        "raise RuntimeError('a bug of the program')\n"
    )
    with UdpModel(SMALL) as model, ThreadPoolExecutor(1) as pool:
        other = pool.submit(Worker, model.address(1), rank=1, world=2, key=7, evict_s=0)
        done = subprocess.run(
            [sys.executable, "-c", script, model.address(0)], capture_output=True, text=True, timeout=60
        )
        assert "a bug of the program" in done.stderr
        with other.result(timeout=30) as worker, pytest.warns(match="lacks rank 0"):
            absent = [worker.allreduce(np.ones(40, np.float32)).absent for _ in range(2)]
        assert absent[1] == (0,)  # what rank 0 sent before its end may be in the first sum

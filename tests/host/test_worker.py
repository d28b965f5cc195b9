"""Workers against the golden model of the switch, over UDP sockets with a bad network between."""

import contextlib
import socket
import threading
import time
import warnings

import numpy as np
import pytest

import iswitch.worker
from iswitch import (
    ClosedError,
    CollectiveTimeoutError,
    IswitchError,
    JobResetError,
    MembershipChangedError,
    MismatchError,
    MissingWarning,
    NoContributionError,
    NotAMemberError,
    Reduction,
    RefusedError,
    SwitchUnreachableError,
    TaintedError,
    TaintWarning,
    Worker,
)
from iswitch.config import Config
from iswitch.control import abandoned_job
from iswitch.control.client import Control
from iswitch.driver.exchange import open_exchange
from iswitch.driver.udp import UdpTransport
from iswitch.golden.decide import random
from iswitch.wire import RESULT_HEADER, JobState, Outcome, Reason
from sim.bench.udp_model import Faults, UdpModel, kill, together

ELEMENTS, WINDOW = 352, 64
SIZES = [0, 1, ELEMENTS - 1, ELEMENTS, ELEMENTS + 1, ELEMENTS * WINDOW, ELEMENTS * WINDOW + 1, ELEMENTS * 200 + 7]
SMALL = Config(ports=4, window=4, elements=16, members=8)
BAD = Faults(loss=0.07, duplication=0.07, reordering=0.07)


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


def numbers(rank: int, size: int, seed: int = 0) -> np.ndarray:
    """Whole numbers, which every order of addition sums exactly."""
    return np.random.default_rng([seed, rank, size]).integers(-1000, 1000, size).astype(np.float32)


def total(world: int, size: int, seed: int = 0) -> np.ndarray:
    return np.sum([numbers(rank, size, seed).astype(np.float64) for rank in range(world)], axis=0).reshape(size)


# Sums


@pytest.mark.parametrize("no_offload", [False, True])
def test_sums_are_exact_at_every_boundary(no_offload):
    def body(worker):
        arrays = [numbers(worker.rank, size) for size in SIZES]
        return arrays, [worker.allreduce(array) for array in arrays]

    with UdpModel() as model:
        for arrays, reductions in together(model, 2, body, no_offload=no_offload, timeout_s=30):
            for size, array, reduction in zip(SIZES, arrays, reductions):
                assert np.array_equal(array, total(2, size))
                assert reduction.complete
                assert reduction.counts.tolist() == [2] * -(-size // ELEMENTS)


@pytest.mark.parametrize(("no_offload", "format"), [(False, "window64"), (True, "fp32")])
def test_sums_are_exact_over_a_bad_network(no_offload, format):
    sizes = [1, 16, 17, 65, 16 * 30 + 7, 1]

    def body(worker):
        arrays = [numbers(worker.rank, size, k) for k, size in enumerate(sizes)]
        for array in arrays:
            assert worker.allreduce(array).complete
        return arrays

    with UdpModel(SMALL, faults=BAD) as model:
        for arrays in together(model, 3, body, no_offload=no_offload, format=format, timeout_s=30):
            for k, (size, array) in enumerate(zip(sizes, arrays)):
                assert np.array_equal(array, total(3, size, k))


def test_seq_crosses_its_end(model, monkeypatch):
    offer = random.offer

    def late(*arguments, **named):
        after, offered = offer(*arguments, **named)
        return after, offered._replace(first_seq=2**32 - 2 * SMALL.slots)

    monkeypatch.setattr(random, "offer", late)

    def body(worker):
        arrays = [numbers(worker.rank, 16 * 9 + k, k) for k in range(6)]
        for array in arrays:
            worker.allreduce(array)
        return arrays

    model.faults = BAD
    for arrays in together(model, 3, body, timeout_s=30):
        for k, array in enumerate(arrays):
            assert np.array_equal(array, total(3, 16 * 9 + k, k))
    assert model.switch.outcomes[Outcome.ADDED] == 3 * sum(-(-(16 * 9 + k) // 16) for k in range(6))


def test_mean_and_shapes(model):
    def body(worker):
        square = np.asfortranarray(np.full((7, 9), worker.rank, np.float32))
        worker.allreduce(square, "mean")
        scalar = np.array(float(worker.rank), np.float32)
        worker.allreduce(scalar, op="mean")
        strided = np.full(40, worker.rank, np.float32)
        worker.allreduce(strided[::2])
        swapped = np.full(5, worker.rank, ">f4")
        worker.allreduce(swapped)
        whole = np.array([2**31 - 1, worker.rank], np.int32)
        worker.allreduce(whole)
        return square, scalar, strided, swapped, whole

    for rank, (square, scalar, strided, swapped, whole) in enumerate(together(model, 3, body)):
        assert (square == 1).all()
        assert scalar == 1
        assert (strided[::2] == 3).all() and (strided[1::2] == rank).all()
        assert (swapped == 3).all()
        assert whole.tolist() == [3 * (2**31 - 1) % 2**32, 3]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 63, 64, 65, 1001])
def test_broadcast_carries_any_bytes(model, length):
    content = np.random.default_rng(length).bytes(length)

    def body(worker):
        mine = content if worker.rank == 1 else bytes(length)
        array = np.frombuffer(mine, np.uint8).copy()
        changed = bytearray(mine)
        returned = worker.broadcast(array, root=1)
        assert returned is array
        assert worker.broadcast(changed, root=1) is changed
        return worker.broadcast(mine, root=1), array.tobytes(), bytes(changed)

    for received in together(model, 3, body):
        assert received == (content,) * 3


def test_broadcast_keeps_bits_of_floats(model):
    bits = np.array([0x7FC00001, 0xFF800000, 1, 0x80000000], np.uint32)

    def body(worker):
        weights = bits.view(np.float32).reshape(2, 2).copy() if worker.rank == 0 else np.ones((2, 2), np.float32)
        return worker.broadcast(weights)

    for weights in together(model, 2, body):
        assert np.array_equal(weights.view(np.uint32).reshape(-1), bits)


def test_barrier_waits_for_all(model):
    passed = []

    def body(worker):
        if worker.rank == 0:
            model.until(lambda switch: switch.counters()["outcome.ADDED"] == 2)
            time.sleep(0.1)  # a worker that does not wait ends in this time
            passed.append("late")
        worker.barrier()
        passed.append("through")

    together(model, 3, body)
    assert passed == ["late"] + ["through"] * 3


# Who is in a sum


@pytest.mark.parametrize("backlog", [None, 0, 5])
def test_laggard_gets_the_results_it_is_not_in(model, backlog):
    sizes = [16 * 9 + k for k in range(6)]  # more than the ring can hold, so that the laggard must acknowledge
    turn = threading.Event()

    def body(worker):
        if worker.rank == 1:
            turn.wait()
        elif backlog is not None:  # the other can go no farther than this
            threading.Timer(0.3, turn.set).start()
        arrays = [numbers(worker.rank, size) for size in sizes]
        reductions = [worker.allreduce(array, "mean") for array in arrays]
        turn.set()
        return arrays, reductions

    model.faults = Faults(loss=0.02)
    (ahead, first), (late, second) = together(model, 2, body, threshold=1, backlog=backlog, timeout_s=30)
    for mine, other, reduction, same in zip(ahead, late, first, second):
        assert np.array_equal(mine, other)
        assert np.array_equal(reduction.member_masks, same.member_masks)
        assert (reduction.counts == 1).all()
    if backlog is None:
        assert all(reduction.missing == (1,) and not reduction.complete for reduction in first)
        assert all(np.array_equal(array, numbers(0, size)) for array, size in zip(ahead, sizes))


def test_mean_divides_each_segment_by_its_own_count(model):
    def body(worker):
        array = np.full(48, 4.0 * (worker.rank + 1), np.float32)
        if worker.rank == 1:
            array[20] = np.nan
        reduction = worker.allreduce(array, op="mean")
        return array, reduction

    for array, reduction in together(model, 2, body, on_taint="ignore"):
        assert array.tolist() == [6.0] * 16 + [4.0] * 16 + [6.0] * 16
        assert reduction.tainted == reduction.missing == (1,)
        assert reduction.counts.tolist() == [2, 1, 2]
        assert reduction.member_masks.tolist() == [3, 1, 3]
        assert reduction.members == (0, 1)


def test_tainted_contribution_is_reported_as_asked(model):
    def body(worker):
        array = np.full(3, np.inf if worker.rank == 1 else 1.0, np.float32)
        how = worker.on_taint = ("raise", "warn")[worker.rank]
        message = (
            r"in collective 1, rank 1 sent NaN, an infinity or a value with .x. >= 16384 .*in 1 of 1 segments\. .* "
            r"lack rank 1\..*on_taint="
        )
        with pytest.raises(TaintedError, match=message) if how == "raise" else contextlib.nullcontext():
            worker.allreduce(array)
        worker.on_taint = "ignore"
        again = np.ones(3, np.float32)
        worker.allreduce(again)
        return array, again

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = together(model, 2, body)
    assert [warning.category for warning in caught] == [TaintWarning]
    for array, again in results:
        assert array.tolist() == [1.0] * 3
        assert again.tolist() == [2.0] * 3


def test_propagated_taint_makes_nan(model):
    def body(worker):
        array = np.full(3, np.inf if worker.rank == 1 else 1.0, np.float32)
        reduction = worker.allreduce(array)
        return array, reduction.tainted, reduction.complete

    for array, tainted, whole in together(model, 2, body, mode="propagate", on_taint="ignore"):
        assert np.isnan(array).all()
        assert (tainted, whole) == ((1,), True)


def test_a_sum_without_contributions_raises(model):
    def body(worker):
        with pytest.raises(
            NoContributionError, match="1 of 1 segments contain no worker's elements: ranks 0 and 1 sent NaN"
        ):
            worker.allreduce(np.full(3, np.nan, np.float32))
        worker.barrier()

    together(model, 2, body)


def test_the_others_do_not_wait_for_a_worker_that_has_left(model):
    def body(worker):
        array = np.ones(40, np.float32)
        worker.allreduce(array)
        if worker.rank == 2:
            return None
        reduction = worker.allreduce(array, "mean")
        return reduction.missing, array.tolist()

    for result in together(model, 3, body)[:2]:
        assert result in [((2,), [3.0] * 40), ((), [2.0] * 40)]


def test_threshold_changes_for_all(model):
    gate = threading.Barrier(2)

    def body(worker):
        worker.barrier()
        gate.wait()
        if worker.rank == 0:
            worker.set_threshold(1)
            for _ in range(10):
                array = np.ones(16 * 5, np.float32)
                worker.allreduce(array)
        gate.wait()
        if worker.rank == 1:
            for _ in range(10):
                reduction = worker.allreduce(np.zeros(16 * 5, np.float32))
                assert reduction.missing == (1,)
        gate.wait()
        if worker.rank == 0:
            worker.reset()
        gate.wait()
        if worker.rank == 1:
            with pytest.raises(JobResetError):
                worker.allreduce(np.zeros(1, np.float32))
            assert worker.threshold == 1

    together(model, 2, body)


def test_a_lower_threshold_ends_the_wait_for_a_silent_worker(model):
    """Two have contributed and wait; the third never will."""
    waiting = threading.Barrier(3, timeout=30)

    def body(worker):
        worker.barrier()
        if worker.rank == 2:
            waiting.wait()
            model.until(lambda switch: switch.counters()["outcome.ADDED"] >= 3 + 2 * 3)
            worker.set_threshold(2)
            waiting.wait()
            return None
        waiting.wait()
        array = np.full(16 * 3, worker.rank + 1, np.float32)
        reduction = worker.allreduce(array, op="sum")
        waiting.wait()
        return reduction.missing, set(array.tolist())

    assert together(model, 3, body)[:2] == [((2,), {3.0})] * 2


def test_after_a_timeout_the_others_go_on_without_a_worker_that_hangs(model):
    """What the time-out's message says: end its process; then `rejoin` and `sync_state` by each of the others."""
    gate = threading.Barrier(3, timeout=30)

    def body(worker):
        worker.barrier()
        if worker.rank == 2:
            gate.wait()
            kill(worker)
            gate.wait()
            return None
        message = (
            r"no result for 0.5 s \(`timeout_s`\).*so rank 2 is not in this collective.*`rejoin`, then "
            r"`sync_state`.*end its process"
        )
        with pytest.raises(CollectiveTimeoutError, match=message):
            worker.allreduce(np.ones(40, np.float32))
        gate.wait()
        gate.wait()
        worker.timeout_s = 20
        worker.rejoin()
        assert worker.sync_state(np.zeros(3), 7) == 7
        array = np.full(40, worker.rank + 1, np.float32)
        reduction = worker.allreduce(array, op="sum")
        return reduction.missing, set(array.tolist())

    assert together(model, 3, body, timeout_s=0.5, evict_s=1.0)[:2] == [((2,), {3.0})] * 2


def test_sum_without_a_worker_that_has_left_warns(model):
    gone = threading.Event()

    def body(worker):
        worker.barrier()
        if worker.rank == 1:
            worker.close()
            gone.set()
            return
        assert gone.wait(10)
        with pytest.warns(MissingWarning, match="the sum of collective 2 lacks rank 1: the worker has left"):
            worker.allreduce(np.ones(3, np.float32))

    together(model, 2, body)


# Trouble


def test_address_wrong():
    with pytest.raises(ValueError, match="host:port"):
        Worker("127.0.0.1:", world=1)


@pytest.mark.parametrize("shut", [False, True])
def test_an_absent_switch_is_unreachable(shut):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        if shut:
            silent.close()
        with pytest.raises(
            SwitchUnreachableError,
            match=f"127.0.0.1:{port} has not answered for 0.3 s .`switch_timeout_s`.*start the switch",
        ):
            Worker(f"127.0.0.1:{port}", world=1, switch_timeout_s=0.3)


def test_a_switch_that_vanishes_in_a_collective_is_unreachable(model):
    with Worker(model.address(), world=1, switch_timeout_s=0.2) as worker:
        model.deaf = True
        message = r"in the middle of a collective of job 0.*has not answered for 0.2 s \(`switch_timeout_s`\).*`rejoin"
        with pytest.raises(SwitchUnreachableError, match=message):
            worker.barrier()
        model.deaf = False


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"world": 3}, Reason.WORLD),
        ({"key": 1}, Reason.KEY),
        ({"format": "fp32"}, Reason.FORMAT),
        ({"elements": 8}, Reason.ELEMENTS),
        ({"threshold": 1}, Reason.MEMBER),
        ({"fraction": 40}, Reason.FRACTION),
        ({"mode": "propagate"}, Reason.MODE),
        ({}, Reason.MEMBER),
        ({"job": 99}, Reason.JOB),
        ({"elements": 17}, Reason.ELEMENTS),
    ],
)
def test_disagreement_is_refused_by_name(model, options, reason, monkeypatch):
    monkeypatch.setattr(abandoned_job, "_GRACE_S", 0.0)

    def body(worker):
        worker.barrier()
        if worker.rank == 0:
            with pytest.raises(RefusedError, match="refused to let a worker join") as caught:
                Worker(model.address(), **({"world": 2} | options))
            assert caught.value.reason == reason
        worker.barrier()

    together(model, 2, body)


def test_missing_workers_are_named_and_the_job_ends(model):
    with pytest.raises(CollectiveTimeoutError, match="waits for 2 workers, of which 1 have joined"):
        Worker(model.address(), world=2, join_timeout_s=0.1)
    with Worker(model.address(), world=1) as worker:
        worker.barrier()


def test_timeout_names_the_counter_that_explains_it(model):
    gate = threading.Barrier(2)

    def body(worker):
        with pytest.raises(
            CollectiveTimeoutError,
            match=r"(?s)or the workers sum arrays of different sizes.*LENGTH .*arrays of different sizes",
        ) as caught:
            worker.allreduce(np.ones(3 + worker.rank, np.float32))
        assert caught.value.counters["LENGTH"] >= 1
        gate.wait()
        with pytest.raises(
            IswitchError,
            match=r"cannot call a collective: an earlier collective failed\. Call `rejoin`, then `sync_state`",
        ):
            worker.barrier()
        if worker.rank == 0:
            worker.reset()
        gate.wait()
        if worker.rank == 1:
            worker.reset()  # finds that the job was reset, and joins in
        gate.wait()
        with pytest.raises(MembershipChangedError, match="call `sync_state` before the next collective"):
            worker.barrier()
        assert worker.sync_state(np.zeros(1), 3) == 3
        worker.barrier()

    together(model, 2, body, timeout_s=0.5)


def test_a_result_of_another_size_is_a_mismatch(model):
    turn = threading.Event()

    def body(worker):
        if worker.rank == 0:
            worker.allreduce(np.ones(3, np.float32))
            turn.set()
        else:
            turn.wait()
            with pytest.raises(MismatchError):
                worker.allreduce(np.ones(40, np.float32))

    together(model, 2, body, threshold=1)


def test_a_reset_raises_at_the_others(model):
    gate = threading.Barrier(3)

    def body(worker):
        array = numbers(worker.rank, 100)
        worker.allreduce(array)
        gate.wait()
        if worker.rank == 0:
            worker.reset()
        gate.wait()
        if worker.rank:
            with pytest.raises(JobResetError, match=r"another worker has reset.*call `sync_state`"):
                worker.allreduce(array)
        assert worker.needs_sync
        worker.sync_state(np.zeros(1), 0)
        array = numbers(worker.rank, 100)
        worker.allreduce(array)
        return array

    for array in together(model, 3, body):
        assert np.array_equal(array, total(3, 100))


def test_an_ended_job_raises_not_a_member(model):
    with Worker(model.address(), world=1, key=5) as worker:
        other = UdpTransport(model.address(1))
        with pytest.raises(RefusedError, match="key"):
            Control(other, address="model").end_job(0, 6)
        Control(other).end_job(0, 5)
        other.close()
        with pytest.raises(NotAMemberError, match=r"has ended|`iswitch end-job` ended the job"):
            worker.barrier()
        with pytest.raises(Exception, match="new Worker"):
            worker.barrier()


def test_a_closed_worker_raises_closed_error(model):
    worker = Worker(model.address(), world=1)
    assert worker.close() is True
    assert worker.close() is False
    with pytest.raises(ClosedError, match="has closed this worker"):
        worker.barrier()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda w: w.allreduce([1.0]), TypeError),
        (lambda w: w.allreduce(np.ones(2)), TypeError),
        (lambda w: w.allreduce(np.ones(2, np.float32), "max"), ValueError),
        (lambda w: w.allreduce(np.ones(2, np.int32), "mean"), ValueError),
        (lambda w: w.allreduce(np.broadcast_to(np.float32(1), 3)), ValueError),
        (lambda w: w.broadcast("text"), TypeError),
        (lambda w: w.broadcast(b"", root=1), ValueError),
        (lambda w: w.broadcast(memoryview(b"1")), ValueError),
        (lambda w: w.broadcast(np.array([None])), TypeError),
        (lambda w: w.broadcast(b"", root=0.0), TypeError),
        (lambda w: w.set_threshold(2), ValueError),
    ],
)
def test_argument_wrong(model, call, error):
    with Worker(model.address(), world=1) as worker:
        before = model.switch.counters()
        with pytest.raises(error):
            call(worker)
        assert model.switch.counters() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"world": 0}, ValueError),
        ({"world": 1.0}, TypeError),
        ({"world": True}, TypeError),
        ({"world": 2, "rank": 2}, ValueError),
        ({"world": 2, "threshold": 3}, ValueError),
        ({"world": 2, "format": "fp64"}, ValueError),
        ({"world": 2, "mode": 0}, ValueError),
        ({"world": 2, "on_taint": "shout"}, ValueError),
        ({"world": 2, "fraction": 150}, ValueError),
        ({"world": 2, "format": "fp16", "fraction": 44}, ValueError),
        ({"world": 2, "key": -1}, ValueError),
        ({"world": 2, "job": 256}, ValueError),
        ({"world": 2, "elements": 0}, ValueError),
        ({"world": 2, "timeout_s": 0}, ValueError),
        ({"world": 2, "backlog": -1}, ValueError),
    ],
)
def test_option_wrong(options, error):
    with pytest.raises(error, match=next(reversed(options))):
        Worker("127.0.0.1:1", **options)


def test_broadcast_and_barrier_wait_for_all_workers_whatever_the_threshold(model):
    came = threading.Event()

    def body(worker):
        if worker.rank == 1:
            model.until(lambda switch: switch.counters()["outcome.ADDED"] == 1)
            time.sleep(0.2)  # in which a barrier ends that one worker can complete
            came.set()
        worker.barrier()
        assert came.is_set()
        return worker.broadcast(bytes([worker.rank] * 100), root=1)

    assert together(model, 2, body, threshold=1) == [bytes([1] * 100)] * 2


@pytest.mark.parametrize("world", [1, 2, 8, 9, 31, 32])
def test_a_sum_is_complete_if_each_segment_has_all_workers(world):
    headers, all_ranks = np.zeros(3, RESULT_HEADER), (1 << world) - 1
    headers["members"] = all_ranks
    assert Reduction(world, 16, 0, headers).complete and Reduction(world, 16, 0, headers[:0]).complete
    for segment, rank in ((0, 0), (1, world // 2), (2, world - 1)):
        headers["members"] = all_ranks
        headers["members"][segment] ^= np.uint32(1 << rank)
        assert not Reduction(world, 16, 0, headers).complete


def test_a_sum_is_not_written_again_into_an_array_that_has_it(model):
    """An array of another class, such as one with physical units, may refuse plain numbers."""

    class Guarded(np.ndarray):
        def __setitem__(self, *_):
            raise AssertionError("written")

    array = np.arange(20, dtype=np.float32).view(Guarded)
    with Worker(model.address(), world=1, rank=0) as worker:
        assert worker.allreduce(array, op="mean").complete
    assert np.array_equal(array, np.arange(20))


def test_a_reduction_of_nothing_is_complete():
    reduction = Reduction(2, 16, 0, np.zeros(0, RESULT_HEADER))
    assert reduction.complete and reduction.tainted == ()


def test_without_epoll(model, monkeypatch):
    monkeypatch.delattr("select.epoll")
    test_laggard_gets_the_results_it_is_not_in(model, None)


def test_the_library_is_there_before_the_worker_is_a_member(model, monkeypatch):
    """Its compilation takes seconds, in which a member would be silent."""
    states = []

    def recorded(transport):
        states.append(model.switch.jobs[0].state)
        return open_exchange(transport)

    monkeypatch.setattr(iswitch.worker, "open_exchange", recorded)
    with Worker(model.address(), world=1):
        assert states == [JobState.NONE]

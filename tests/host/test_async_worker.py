"""Asynchronous workers over UDP, in threads, against the golden switch."""

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import (
    AsyncWorker,
    ClosedError,
    CollectiveTimeoutError,
    DivergedError,
    HaltedWarning,
    JobResetError,
    MembershipChangedError,
    MismatchError,
    NotAMemberError,
    RefusedError,
    SwitchUnreachableError,
    TaintedError,
    TaintWarning,
    Worker,
)
from iswitch.config import Config
from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport
from iswitch.golden.switch import Switch
from iswitch.wire import HEADER, TAIL_BYTES, JobState
from sim.bench.udp_model import Faults, UdpModel, kill
from sim.bench.until import until
from sim.frames.client import SWITCH_IP, SWITCH_MAC

SMALL = Config(ports=4, window=4, elements=16, members=8)
EVICT_S = 2.0  # a starved thread on a busy machine must not look dead
BAD = Faults(loss=0.05, duplication=0.05, reordering=0.05)


@pytest.fixture(params=[Faults(), BAD], ids=["sound", "bad network"])
def model(request):
    with UdpModel(SMALL, faults=request.param) as made:
        yield made


def together(model, world, body, **options):
    """`body(worker)` for each rank in a thread; what they return, by rank, or the first error."""

    def run(rank):
        with AsyncWorker(model.address(rank % 4), rank=rank, world=world, **options) as worker:
            return body(worker)

    with ThreadPoolExecutor(world) as pool:
        futures = [pool.submit(run, rank) for rank in range(world)]
        return [future.result(timeout=60) for future in futures]


def train(worker, goal, *, size, compute_s=0.0):
    """Push and take updates until there are `goal`. This worker's k-th vector is a bit of its own, so that a sum shows
    its contributors, and duplicates."""
    taken, pushed = [], 0
    while len(taken) < goal:
        for update in worker.updates():
            taken.append(update)
            if len(taken) == goal:
                return taken
        time.sleep(compute_s)  # stands for computing, as below
        worker.push(np.full(size, 1 << worker.rank + 4 * (pushed % 7), np.int32))
        pushed += 1
    return taken


def halted(warned):
    """Return the HaltedWarnings. Garbage of another test may warn too."""
    return [each for each in warned if each.category is HaltedWarning]


def push_until(worker, condition):
    """Push a vector. The driver's thread does the rest, until a condition holds."""
    worker.push(np.zeros(40, np.int32))
    until(condition, 30)


@pytest.mark.parametrize("size", [1, 16, 17, 200])
def test_all_workers_receive_the_same_updates_with_each_member_once(model, size):
    def body(worker):
        taken = train(worker, 40, size=size)
        return (
            [(update.number, update.members, update.sum.tobytes()) for update in taken],
            worker.digest,
            taken,
            worker.confirmed_updates(),
        )

    answers = together(model, 3, body, size=size, staleness=2, threshold=2, format="int32")
    assert len({digest for _, digest, _, _ in answers}) == 1
    assert answers[0][0] == answers[1][0] == answers[2][0]
    for update in answers[0][2]:
        assert update.number == answers[0][2].index(update) and update.count == len(update.members) >= 2
        assert len(set(update.sum.tolist())) == 1
        bits = [bit for bit in range(28) if int(update.sum[0]) >> bit & 1]
        assert sorted(bit % 4 for bit in bits) == list(update.members) == sorted(update.ages)
        assert all(0 <= age <= 2 for age in update.ages.values())
    for rank, (_, _, _, confirmed) in enumerate(answers):
        assert confirmed[rank] == 40 and all(confirmed[other] >= 30 for other in confirmed)
    assert sum(model.switch.ages[3:]) == 0


def test_a_slow_worker_does_not_block_the_others_and_contributes_later(model):
    done = threading.Event()

    def body(worker):
        if worker.rank < 2:
            taken = train(worker, 60, size=20, compute_s=0.001)
            if worker.rank == 0:
                done.set()
            while not any(2 in update.members for update in taken[-10:]):  # slower now, so that it gets in
                taken += train(worker, 1, size=20, compute_s=0.02)
            return taken, worker.version
        version = worker.version
        assert done.wait(30)
        worker.push(np.zeros(20, np.int32), version=version)
        while not worker.refused:
            assert worker.wait()
            list(worker.updates())
        in_it = []
        while not in_it:
            in_it += [update for update in worker.updates() if 2 in update.members]
            if not in_it:
                worker.push(np.zeros(20, np.int32))
        return worker.refused, worker.ages

    refused, ages = together(model, 3, body, size=20, staleness=2, threshold=2, format="int32", backlog=200)[2]
    assert refused >= 1 and ages.total() >= 1


def test_a_halted_job_takes_no_vectors_until_any_worker_resumes_it(model):
    trained = threading.Barrier(2)

    def body(worker):
        train(worker, 5, size=40)
        trained.wait(30)
        if worker.rank == 0:
            worker.halt()
            deadline = time.monotonic() + 20
            while not halted(warned) and time.monotonic() < deadline:
                list(worker.updates())  # so that no vector is too old
                worker.push(np.zeros(40, np.int32))
        else:
            until(lambda: halted(warned), 30)
            assert model.switch.jobs[0].state == JobState.HALTED
            worker.resume()
        return len(train(worker, 5, size=40))

    with pytest.warns(HaltedWarning, match="vectors wait until a worker of the job calls `resume`") as warned:
        assert together(model, 2, body, size=40, staleness=2, threshold=1, format="int32") == [5, 5]
    assert model.switch.jobs[0].state == JobState.NONE


def test_after_a_refusal_push_waits_for_an_update_that_the_refused_weights_lack(model):
    """Its next vector would be refused too. Here that update waits because the job is halted, which `push` says; it
    does so for longer than `timeout_s`, which does not count then."""
    granted, refused, workers = threading.Barrier(2), threading.Barrier(2), {}

    def body(worker):
        workers[worker.rank] = worker
        if worker.rank == 1:  # it calls nothing that waits, so the warning is the other one's
            worker.halt()
            push_until(worker, lambda: worker.ages)
            granted.wait(30)
            refused.wait(30)
            until(lambda: halted(warned), 30)
            workers[0].timeout_s = 30
            worker.resume()
            assert worker.wait(30)
            return len(list(worker.updates()))
        granted.wait(30)
        push_until(worker, lambda: worker.refused)
        refused.wait(30)
        worker.timeout_s = 0.2
        worker.push(np.zeros(40, np.int32), version=0)
        return len(list(worker.updates())), worker.refused

    with pytest.warns(HaltedWarning) as warned:
        assert together(model, 2, body, size=40, staleness=0, threshold=1, format="int32") == [(1, 2), 1]


def test_push_says_that_a_worker_has_not_sent_the_vector_that_was_granted(model):
    granted = threading.Barrier(2)

    def body(worker):
        if worker.rank == 1:
            worker.halt()
            push_until(worker, lambda: worker.ages)
            kill(worker)
            granted.wait(30)
            return None
        granted.wait(30)
        push_until(worker, lambda: worker.refused)
        worker.resume()
        worker.timeout_s = 0.2
        with pytest.raises(CollectiveTimeoutError, match=r"a worker has not sent its vector.*after `evict_s` seconds"):
            worker.push(np.zeros(40, np.int32))

    together(model, 2, body, size=40, staleness=0, threshold=1, format="int32", evict_s=0)


def test_wait_says_that_the_job_is_halted_and_asks_the_switch_once_a_second(model):
    with AsyncWorker(model.address(0), world=1, size=40, format="int32") as worker:
        worker.push(np.zeros(40, np.int32))
        assert worker.wait(30) and list(worker.updates())
        worker.halt()
        worker.push(np.zeros(40, np.int32))
        with pytest.warns(HaltedWarning) as warned:
            until(lambda: halted(warned) or worker.wait(0.1), 30)
        assert len(halted(warned)) == 1
        before = model.switch.counters()["outcome.CONTROL"]
        with warnings.catch_warnings(action="ignore", category=HaltedWarning):
            assert not any(worker.wait(0.0) for _ in range(200))
        assert model.switch.counters()["outcome.CONTROL"] - before < 200  # mostly 0: no call has a request of its own
        worker.resume()
        with warnings.catch_warnings(action="error", category=HaltedWarning):  # the NOTICE is of the time before
            assert worker.wait(30)


def test_a_killed_worker_is_evicted_and_the_others_go_on(model):
    died = threading.Event()

    def body(worker):
        if worker.rank == 2:
            train(worker, 10, size=40)
            kill(worker)
            died.set()
            return None
        taken = train(worker, 10, size=40)
        assert died.wait(30)
        while len(taken) < 60:
            taken += train(worker, 1, size=40)
        return worker.digest, [update.members for update in taken][-1]

    answers = together(model, 3, body, size=40, staleness=1, threshold=3, format="int32", evict_s=EVICT_S)
    assert answers[0] == answers[1] and answers[0][1] == (0, 1)
    assert model.switch.counters()["stat.EVICTED"] == 1


class Trainee:
    """Weights that every update changes, and whose gradient is the weights."""

    def __init__(self, worker):
        self.worker, self.weights, self.members = worker, np.linspace(-1, 1, 40, dtype=np.float32), []

    def train(self, goal):
        """Until so many updates are in the weights."""
        while True:
            self.worker.sync_state(self.weights)
            for update in self.worker.updates():
                self.weights -= np.float32(0.1) * update.mean()
                self.members.append(update.members)
                if self.worker.version == goal:
                    return self
            time.sleep(0.002)
            self.worker.push(self.weights * np.float32(1 + self.worker.rank))


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("staleness", [0, 3])
def test_a_killed_worker_joins_again_and_receives_the_weights_of_the_others(model, threshold, staleness):
    options = {
        "world": 3,
        "size": 40,
        "threshold": threshold,
        "staleness": staleness,
        "evict_s": EVICT_S,
        "elastic": True,
        "timeout_s": 20,
        "join_timeout_s": 20,
    }
    goal = 10_000

    def run(rank):
        nonlocal goal
        try:
            return survive(rank) if rank < 2 else die_and_come_back()
        except BaseException:
            goal = 0  # the others need not go on
            raise

    def survive(rank):
        with AsyncWorker(model.address(rank), rank=rank, **options) as worker:
            trainee = Trainee(worker).train(20)
            while worker.version < goal:
                trainee.train(worker.version + 1)
            return trainee.weights, worker.digest, trainee.members, worker.version

    def die_and_come_back():
        nonlocal goal
        with AsyncWorker(model.address(2), rank=2, **options) as worker:
            Trainee(worker).train(20)
            kill(worker)
        with AsyncWorker(model.address(3), rank=2, **options) as worker:
            assert worker.needs_sync
            with pytest.raises(MembershipChangedError, match="call `sync_state` first"):
                list(worker.updates())
            with pytest.raises(MembershipChangedError, match="call `sync_state` first"):
                worker.push(np.zeros(40, np.float32))
            trainee = Trainee(worker)
            trainee.weights[:] = np.nan
            worker.sync_state(trainee.weights)
            assert not worker.needs_sync and worker.version > 20
            goal = worker.version + worker._stream.updates_ready + 60
            trainee.train(goal)
            return trainee.weights, worker.digest, trainee.members, worker.version

    with ThreadPoolExecutor(3) as pool:
        answers = [future.result(timeout=60) for future in [pool.submit(run, rank) for rank in range(3)]]
    assert len({(weights.tobytes(), digest, version) for weights, digest, _, version in answers}) == 1
    assert np.isfinite(answers[0][0]).all()
    members = answers[2][2]
    assert answers[0][2][-len(members) :] == answers[1][2][-len(members) :] == members
    assert (0, 1, 2) in members or any(2 in each for each in members)
    assert model.switch.counters()["stat.ADMITTED"] == model.switch.counters()["stat.EVICTED"] == 1


def test_a_joining_worker_that_receives_no_weights_times_out():
    with UdpModel(SMALL) as model:

        def run(rank):
            with AsyncWorker(model.address(rank), rank=rank, world=2, size=8, threshold=1, elastic=True) as worker:
                if rank == 1:
                    worker.close()
                    with AsyncWorker(
                        model.address(1), rank=1, world=2, size=8, threshold=1, elastic=True, timeout_s=0.5
                    ) as again:
                        with pytest.raises(CollectiveTimeoutError, match="has sent its weights within"):
                            again.sync_state(np.zeros(8))
                    over.set()
                while not over.is_set():
                    for _ in worker.updates():
                        pass
                    worker.push(np.ones(8, np.float32))

        over = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(run, rank) for rank in range(2)]:
                future.result(timeout=60)


def test_every_sync_state_of_a_joining_worker_ends_by_its_time_out_in_a_halted_job(model):
    """Also the second and third, whose requests would be refused, or find the pipeline full."""
    options = {"world": 2, "size": 40, "format": "int32", "staleness": 0, "threshold": 1, "elastic": True}
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: AsyncWorker(model.address(rank), rank=rank, **options), range(2))
        first.close()
        with second, AsyncWorker(model.address(2), rank=0, timeout_s=0.3, **options) as joining:
            second.halt()
            push_until(second, lambda: second.ages)
            backlog = joining._stream.backlog
            for _ in range(3):
                ended = pool.submit(joining.sync_state, np.zeros(4))
                with pytest.raises(CollectiveTimeoutError, match="has sent its weights within"):
                    ended.result(timeout=30)
            assert joining._stream.backlog == backlog
            second.resume()


def test_means_divide_by_the_members_of_the_sum_in_any_order_of_arrival(model):
    def body(worker):
        weights = np.linspace(-1, 1, 50, dtype=np.float32)
        while worker.version < 30:
            for update in worker.updates():
                weights -= np.float32(0.1) * update.mean()
                if worker.version == 30:
                    return weights
            worker.push(weights * np.float32(worker.rank + 1))
        return weights

    answers = together(model, 3, body, size=50, staleness=3, threshold=2)
    assert len({weights.tobytes() for weights in answers}) == 1
    assert np.abs(answers[0]).max() < 0.2


def test_the_others_do_not_wait_for_a_worker_that_has_left(model):
    def body(worker):
        taken = train(worker, 5 + 5 * worker.rank, size=30)
        worker.close()  # whether the answer to it comes within a second is up to the machine, too
        return len(taken)

    assert together(model, 3, body, size=30, staleness=1, threshold=3, format="int32") == [5, 10, 15]


def test_a_segment_with_infinity_is_not_in_a_sum():
    with UdpModel(SMALL) as model:

        def body(worker):
            vector = np.ones(32, np.float32)
            vector[3] = np.nan if worker.rank else 1.0
            worker.push(vector)
            assert worker.wait()
            [update] = worker.updates()
            assert "members=(0, 1), tainted=(1,)" in repr(update)
            return update.tainted, update.counts[:2].tolist(), update.members, set(update.sum[:16]), set(update.mean())

        with pytest.warns(
            TaintWarning, match=r"rank 1 sent NaN.* in 1 of 2 segments\. The sums of these segments lack rank 1"
        ):
            assert together(model, 2, body, size=32, on_taint="warn") == [((1,), [1, 2], (0, 1), {1.0}, {1.0})] * 2


def test_a_tainted_update_raises_at_all_workers_and_later_updates_come():
    with UdpModel(SMALL) as model:

        def body(worker):
            for value in (np.nan if worker.rank else 1.0, 2.0):
                worker.push(np.full(32, value, np.float32))
            assert worker.wait()
            with pytest.raises(TaintedError, match=r"in update 0, rank 1 sent NaN.*on_taint=") as caught:
                list(worker.updates())
            while not (later := list(worker.updates())):
                worker.wait()
            return (
                caught.value.result.number,
                caught.value.result.tainted,
                later[0].number,
                set(later[0].sum),
                worker.digest,
            )

        first, second = together(model, 2, body, size=32)
        assert first == second and first[:4] == (0, (1,), 1, {4.0})


def test_a_worker_with_other_updates_is_detected_at_its_next_vector():
    with UdpModel(SMALL) as model:

        def body(worker):
            if worker.rank == 1:
                look = worker._stream.next_update

                def spoilt():
                    arrival = look()
                    if arrival and worker.version == 2:
                        arrival.sum[0] += 1
                    return arrival

                worker._stream.next_update = spoilt
            with pytest.raises(DivergedError, match=r"received different updates among the first [345],"):
                train(worker, 30, size=20)
            with pytest.raises(DivergedError):
                worker.confirmed_updates()
            with pytest.raises(DivergedError):
                list(worker.updates())
            assert len(worker.digest) == 64
            return worker.version

        assert max(together(model, 2, body, size=20, staleness=1, format="int32")) <= 7


def test_a_push_without_other_vectors_times_out_with_the_switchs_counters():
    with UdpModel(SMALL) as model:

        def body(worker):
            if worker.rank == 1:
                return over.wait(30)
            for _ in range(2):
                worker.push(np.zeros(5, np.float32))
            begun = time.monotonic()
            with pytest.raises(CollectiveTimeoutError, match="waits until 2 of 2 workers have a vector ready"):
                worker.push(np.zeros(5, np.float32))
            assert time.monotonic() - begun >= 0.3
            worker.set_threshold(1)
            worker.push(np.zeros(5, np.float32))
            over.set()
            return True

        over = threading.Event()
        assert together(model, 2, body, size=5, timeout_s=0.3) == [True, True]


def test_wait_says_whether_something_came():
    with UdpModel(SMALL) as model:

        def body(worker):
            assert not worker.wait(0.05)
            worker.push(np.zeros(5, np.float32))
            assert worker.wait(5)
            [update] = worker.updates()
            return update.count

        assert together(model, 2, body, size=5) == [2, 2]


def end(model, deed, check):
    """Two workers train until one of them does a deed; then both check their errors."""

    def body(worker):
        train(worker, 5, size=20)
        barrier.wait(10)
        if worker.rank == 0:
            deed(worker)
        check(worker)

    barrier = threading.Barrier(2)
    together(model, 2, body, size=20, format="int32")


@pytest.mark.parametrize("wait_s", [0.0, 0.02])
def test_a_loop_of_short_waits_learns_that_the_switch_is_gone(wait_s):
    """Each call is shorter than the time after which one call asks the switch."""
    with UdpModel(SMALL) as model:
        worker = AsyncWorker(model.address(), world=1, size=20, switch_timeout_s=0.2)
        worker.push(np.ones(20, np.float32))
        assert worker.wait(30)
        assert len(list(worker.updates())) == 1
    with pytest.raises(SwitchUnreachableError, match=r"has not answered for 0\.2 s"):
        for _ in range(200):
            worker.wait(wait_s)
            time.sleep(0.02)  # 4 s in all, 20 times `switch_timeout_s`; a slow machine takes longer, which helps
    worker.close()


def test_an_ended_job_and_a_restarted_switch_raise_not_a_member():
    with UdpModel(SMALL) as model:

        def restart(_):
            with model.lock:
                model.switch = Switch(SMALL, mac=SWITCH_MAC, ip=SWITCH_IP, seed=99)

        def check(worker):
            with pytest.raises(NotAMemberError, match="the switch restarted"):
                train(worker, 10_000, size=20)
            with pytest.raises(NotAMemberError):
                worker.push(np.zeros(20, np.int32))  # also if there is a place for it
            assert not worker.close()
            with pytest.raises(ClosedError, match="make a new AsyncWorker"):
                worker.wait(0.1)

        end(model, restart, check)


def test_a_reset_of_the_job_ends_it_for_asynchronous_workers():
    with UdpModel(SMALL) as model:

        def reset(worker):
            with worker._keepalive:
                worker._control.reset(worker._stream.membership)

        def check(worker):
            with pytest.raises(JobResetError, match="begin again with a new AsyncWorker"):
                train(worker, 10_000, size=20)

        end(model, reset, check)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"staleness": 1}, "this worker's `staleness` is 1, and the job's is 3"),
        ({"size": 40}, "an update of this worker has 4 segments, and one of the job has 2"),
        ({"key": 1}, "belongs to another program"),
    ],
)
def test_a_worker_with_other_settings_is_refused_by_the_settings_name(options, message):
    with UdpModel(SMALL) as model, ThreadPoolExecutor(2) as pool:
        common = {"world": 2, "size": 10, "job": 3}
        first = pool.submit(lambda: AsyncWorker(model.address(), rank=0, **common, join_timeout_s=1.0))
        model.until(lambda switch: switch.jobs[3].state != JobState.NONE)
        with pytest.raises(RefusedError, match=message):
            AsyncWorker(model.address(1), rank=1, **common | options)
        with pytest.raises(CollectiveTimeoutError, match="waits for 2 workers"):
            first.result()


def test_a_job_is_asynchronous_for_all_or_for_none():
    with UdpModel(SMALL) as model, ThreadPoolExecutor(2) as pool:
        first = pool.submit(
            lambda: AsyncWorker(model.address(), rank=0, world=2, size=10, staleness=0, join_timeout_s=1.0)
        )
        model.until(lambda switch: switch.jobs[0].state != JobState.NONE)
        with pytest.raises(RefusedError, match="this worker is a Worker, and the job is one of AsyncWorkers"):
            Worker(model.address(1), rank=1, world=2)
        with pytest.raises(CollectiveTimeoutError):
            first.result()


def test_vectors_of_other_lengths_with_as_many_segments_are_a_mismatch():
    with UdpModel(SMALL) as model:

        def body(rank):
            with AsyncWorker(model.address(rank), rank=rank, world=2, size=20 + rank, timeout_s=0.5) as worker:
                try:
                    for _ in range(20):
                        list(worker.updates())
                        worker.push(np.ones(20 + rank, np.float32))
                except (MismatchError, CollectiveTimeoutError) as error:
                    return str(error)
                return ""  # the other one has found it out, and has left

        with ThreadPoolExecutor(2) as pool:
            assert any("LENGTH" in message or "same length" in message for message in pool.map(body, range(2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"staleness": 8}, "staleness must be 0 to 7, not 8"),
        ({"threshold": 3}, "threshold must be 1 to 2, not 3"),
        ({"size": 0}, "size must be 1 to"),
        ({"backlog": 3}, "backlog must be 4 to"),
        ({"format": "fp64"}, "format must be one of"),
        ({"format": "fp16"}, "format of an AsyncWorker must be"),
        ({"timeout_s": 0}, "timeout_s must be above 0"),
        ({"evict_s": 0.001}, "evict_s must be 0, or"),
        ({"rank": 2}, "rank must be 0 to 1"),
    ],
)
def test_wrong_arguments_raise_before_anything_is_sent(options, message):
    with pytest.raises(ValueError, match=message):
        AsyncWorker("127.0.0.1:1", **{"world": 2, "size": 10} | options)


def test_wrong_vectors_raise_before_anything_is_sent():
    with UdpModel(SMALL) as model, AsyncWorker(model.address(), world=1, size=6) as worker:
        with pytest.raises(TypeError, match=r"vector must be an array of float32, not float64: pass `vector\.astype"):
            worker.push(np.zeros(6))
        with pytest.raises(TypeError, match=r"vector must be a numpy\.ndarray, not list: pass `numpy\.array"):
            worker.push([1.0] * 6)
        with pytest.raises(ValueError, match="vector must have 6 elements"):
            worker.push(np.zeros(7, np.float32))
        with pytest.raises(ValueError, match="version must be 0 to 0, not 1"):
            worker.push(np.zeros(6, np.float32), version=1)
        vector = np.arange(6, dtype=np.float32).reshape(2, 3)
        worker.push(vector)
        vector[:] = 9  # `push` has taken a copy
        assert worker.wait(5)
        [update] = worker.updates()
        assert update.sum.tolist() == [0, 1, 2, 3, 4, 5] and update.ages == {0: 0} and worker.version == 1
        with pytest.raises(ValueError, match="`mean` needs a job of float32"):
            type(update)(0, update.sum.astype(np.int32), {}, update.reduction).mean()
        assert "rank 0 of 1, job 0" in repr(worker) and worker.counters()["ADDED"] == worker.segments == 2
        transport = UdpTransport(model.address(1))
        assert Control(transport).job(0).live == 1
        transport.close()


def test_the_window_fits_the_socket_buffer(monkeypatch):
    """Without a privilege, the kernel grants a buffer for fewer segments than the switch's window has."""
    monkeypatch.setattr(
        UdpTransport, "receive_buffer_bytes", 2 * 3 * (HEADER.itemsize + 4 * SMALL.elements + TAIL_BYTES)
    )
    with UdpModel(SMALL) as model, AsyncWorker(model.address(), world=1, size=100) as worker:
        assert (worker._stream.window.size, worker._stream.membership.window) == (3, 4)
        vector = np.arange(100, dtype=np.float32)
        worker.push(vector)
        assert worker.wait()
        [update] = worker.updates()
        assert np.array_equal(update.sum, vector)

"""The messages for common mistakes name the cause, the responsible side, and the parameter or command that helps."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import (
    AsyncWorker,
    ClosedError,
    CollectiveTimeoutError,
    IswitchError,
    MismatchError,
    MissingWarning,
    Reduction,
    RefusedError,
    SwitchUnreachableError,
    TaintWarning,
    Worker,
)
from iswitch.config import Config
from iswitch.control import collective_caller
from sim.bench.udp_model import UdpModel, together

SMALL = Config(ports=4, window=4, elements=16, members=8)


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def forming():
    """The address of a switch at which a worker with rank 0 and a key waits for a second one."""
    with ThreadPoolExecutor(1) as pool:
        with UdpModel(SMALL) as made:
            waits = pool.submit(Worker, made.address(), world=2, rank=0, key=5, switch_timeout_s=0.5)
            made.until(lambda switch: switch.jobs[0].live)
            yield made.address(1)
        assert isinstance(waits.exception(), SwitchUnreachableError)


ALIVE = r"Rank 0 \(10\.0\.1\.0:\d+, behind port 0 of the switch\) gave its last sign of life 0\.\d s ago"
END_JOB = r"If the job's workers are dead, `iswitch end-job --job 0{key} --switch 127\.0\.0\.1:\d+` ends the job$"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rank": 0},
            rf"rank 0 is taken\. To go on, give every worker a rank of its own.*{ALIVE} and is alive\. "
            rf"{END_JOB.format(key=' --key 5')}",
        ),
        (
            {"world": 3},
            rf"this worker's `world` is 3, and the job's is 2\. .*start all workers with the same `world`.*{ALIVE}",
        ),
        ({"format": "fp32"}, r"this worker's `format` is \"fp32\", and the job's is \"window64\"\."),
        ({"fraction": 40}, r"this worker's `fraction` is 40, and the job's is 44\."),
        ({"evict_s": 7.0}, r"this worker's `evict_s` is 7, and the job's is 5\."),
        ({"deadline_s": 7.0}, r"this worker's `deadline_s` is 7, and the job's is 0\."),
        ({"threshold": 1}, r"this worker's `threshold` is 1, and the job's is 2\."),
        ({"elements": 8}, r"this worker's `elements` is 8, and the job's is 16\."),
        ({"mode": "propagate"}, r"`mode` is not the job's\..*start all workers with the same `mode`"),
        (
            {"key": 6},
            r"the job belongs to another program, because its key is not that of this worker\. To go on, if the job "
            r"belongs to this program, give all its workers the same `key=` or ISWITCH_KEY\. Otherwise use another job "
            rf"number, for example job=1, or ISWITCH_JOB=1 for `iswitch.init\(\)`\. {ALIVE}.*--key KEY",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_refusal_names_both_values_and_the_members_of_the_job(forming, options, message):
    with pytest.raises(RefusedError, match=message):
        Worker(forming, **({"world": 2, "rank": 1, "key": 5} | options))


def test_a_number_of_a_job_that_the_switch_does_not_have(model):
    with pytest.raises(RefusedError, match=r"there is no such job.*the switch has fewer `jobs`"):
        Worker(model.address(), world=1, job=99)


def test_more_workers_than_the_switch_can_hold(model):
    with pytest.raises(
        RefusedError, match=r"`world` is not the job's, or more than the switch can hold.*`iswitch status`"
    ):
        Worker(model.address(), world=20)


def test_the_address_is_the_environments_unless_one_is_given(model, monkeypatch):
    monkeypatch.setenv("ISWITCH_ADDRESS", model.address(1))
    with Worker(world=1) as worker, AsyncWorker(world=1, size=3, job=1) as other:
        assert worker.address == other.address == model.address(1)
    with Worker(model.address(2), world=1) as worker:
        assert worker.address == model.address(2)
    monkeypatch.delenv("ISWITCH_ADDRESS")
    with pytest.raises(
        SwitchUnreachableError,
        match=r"the switch at 127\.0\.0\.1:27000 has not answered for 0\.1 s \(`switch_timeout_s`\)",
    ):
        Worker(world=1, switch_timeout_s=0.1)


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 3}, "threshold must be 1 to 2, not 3"),
        ({"rank": 2}, "rank must be 0 to 1, not 2"),
        ({"switch_timeout_s": 0}, "switch_timeout_s must be above 0"),
        ({"on_taint": "shout"}, "on_taint must be one of 'raise', 'warn', 'ignore'"),
    ],
)
def test_wrong_parameters_raise_before_anything_is_sent(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind("127.0.0.1:1", world=2, **options, **({"size": 3} if kind is AsyncWorker else {}))


def test_collectives_of_two_threads_at_once_are_refused(model):
    def body(worker):
        if worker.rank == 1:
            assert entered.wait(30)
        else:

            def other():
                model.until(lambda switch: switch.counters()["outcome.ADDED"] >= 1)
                with pytest.raises(IswitchError, match=r"another thread is using this worker.*from one thread only"):
                    worker.allreduce(np.ones(3, np.float32))
                entered.set()

            thread = threading.Thread(target=other)
            thread.start()
        array = np.ones(3, np.float32)
        worker.allreduce(array)
        return array.tolist()

    entered = threading.Event()
    assert together(model, 2, body) == [[2.0] * 3] * 2


@pytest.mark.parametrize("more", [1, 2, 16, 32])
def test_arrays_of_another_number_of_segments_are_a_mismatch(model, more, monkeypatch):
    """The identity of a collective counts segments modulo 16."""
    monkeypatch.setattr(collective_caller, "_QUIET_S", 0.05)

    def body(worker):
        try:
            reduction = worker.allreduce(np.ones(16 * (1 + more * worker.rank), np.float32))
        except CollectiveTimeoutError:
            return "the other worker has left"
        except MismatchError as error:
            return str(error)
        assert set(reduction.absent) == {1 - worker.rank}
        return "the other worker has left"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingWarning)
        found = together(model, 2, body, timeout_s=10)
    errors = [text for text in found if text != "the other worker has left"]
    assert errors
    for text in errors:
        assert "compare the programs" in text or "pass arrays of the same size" in text


def test_one_thread_after_another_may_use_a_worker(model):
    with Worker(model.address(), world=1) as worker:
        worker.barrier()
        thread = threading.Thread(target=worker.barrier)
        thread.start()
        thread.join()
        assert worker.segments_completed == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.allreduce(np.ones(3, np.float32)),
        lambda w: w.barrier(),
        lambda w: w.rejoin(),
        lambda w: w.reset(),
        lambda w: w.counters(),
        lambda w: w.set_threshold(1),
        lambda w: w.sync_state(np.ones(1), 0),
    ],
)
def test_use_after_close(model, call):
    with Worker(model.address(), world=1) as worker:
        worker.close()
        with pytest.raises(ClosedError, match=r"closed this worker of job 0 at .*: make a new Worker"):
            call(worker)


# What a result says


def test_a_result_shows_the_missing_and_tainted_ranks(model):
    def body(worker):
        array = np.ones(40, np.float32)
        complete = repr(worker.allreduce(array))
        array[20] = 2.0**14 if worker.rank else 1.0
        return complete, repr(worker.allreduce(array))

    for complete, partial in together(model, 2, body, on_taint="ignore"):
        assert complete.startswith("Reduction(world=2, segments=3, missing=(), tainted=(), retransmissions=")
        assert partial.startswith("Reduction(world=2, segments=3, missing=(1,), tainted=(1,), retransmissions=")


def test_each_tainted_sum_is_a_warning_of_its_own(model):
    """Python shows a text once for a line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with Worker(model.address(), world=1, mode="propagate", on_taint="warn") as worker:
            for _ in range(10):
                worker.allreduce(np.full(3, np.nan, np.float32))
    assert [warning.category for warning in caught] == [TaintWarning] * 10
    assert "The sums of these segments are NaN" in str(caught[-1].message)


def test_a_warning_comes_each_time_that_other_workers_are_missing(model):
    with Worker(model.address(), world=1) as worker, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        reduction = worker.allreduce(np.ones(3, np.float32))
        for _ in range(3):
            for absent in ((), (1,), (1,), (1, 2)):
                worker._collectives += 1
                headers = reduction.headers.copy()
                headers["members"] = 0b111 & ~sum(1 << rank for rank in absent)
                worker._report_problems(Reduction(3, reduction.elements, 0, headers))
    assert [str(warning.message).partition(":")[0] for warning in caught] == [
        f"the sum of collective {number} lacks {who}"
        for number, who in (
            (3, "rank 1"),
            (5, "ranks 1 and 2"),
            (7, "rank 1"),
            (9, "ranks 1 and 2"),
            (11, "rank 1"),
            (13, "ranks 1 and 2"),
        )
    ]
    assert {warning.category for warning in caught} == {MissingWarning}

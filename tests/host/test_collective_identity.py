"""Workers at different steps, or with different state, are never added to each other: drivers against the golden
switch."""

import ctypes
import os
import socket
import struct
import threading

import numpy as np
import pytest

from iswitch import CollectiveTimeoutError, DivergedError, IswitchError, JobResetError, MismatchError
from iswitch.config import Config
from iswitch.control.collective_caller import CollectiveCaller
from iswitch.wire import Outcome
from sim.bench.udp_model import UdpModel, together

SMALL = Config(ports=4, window=4, elements=16, members=8)


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


def errors(model, body, world=2):
    """Return the error that `body(worker)` raises at each worker."""
    start = threading.Barrier(world)

    def run(worker):
        start.wait(20)
        with pytest.raises(IswitchError) as caught:
            body(worker)
        start.wait(20)  # no worker leaves before the other has its error
        return caught.value

    return together(model, world, run)


def outcomes(model, outcome):
    with model.lock:
        return model.switch.outcomes[outcome]


def test_recovery_without_a_sync_never_adds_two_steps(model):
    """The results of a step's last segments reach one worker and not the other, for longer than `timeout_s`. Then both
    "reset and do it again", as a program does that does not follow the driver's advice."""
    at, log = threading.Barrier(2), {0: [], 1: []}

    def train(worker):
        step, rank = 0, worker.rank
        while step < 8:
            worker._recovery.failure, worker._recovery.needs_sync = None, False
            gradient = np.full(40, step, np.float32)
            if step == 4 and rank == 0 and not log[0]:
                worker.timeout_s = 1.0
                mute(worker, 1.5)
            try:
                worker.allreduce(gradient)
            except CollectiveTimeoutError:
                worker.reset()
                log[rank].append("reset")
                continue
            except JobResetError:
                continue
            except MismatchError as error:
                log[rank].append(error)
                break
            assert (gradient == 2 * step).all()
            step += 1
        at.wait(20)

    together(model, 2, train, evict_s=10.0, timeout_s=20.0)
    assert log[0][0] == "reset" and isinstance(log[0][-1], MismatchError) and isinstance(log[1][-1], MismatchError)
    assert "This worker is 1 collective behind" in str(log[0][-1]) and "`sync_state`" in str(log[0][-1])
    assert "The other worker is 1 collective behind" in str(log[1][-1])


def mute(worker, seconds):
    """Nothing reaches the worker for a time, as with a broken receive fibre: the socket drops what comes."""
    attach_filter, detach_filter = 26, 27
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    descriptor = os.dup(worker._transport.inner.fileno())
    link = socket.socket(fileno=descriptor)
    link.setsockopt(socket.SOL_SOCKET, attach_filter, struct.pack("@HP", 1, ctypes.addressof(drop_all)))

    def mend():
        link.setsockopt(socket.SOL_SOCKET, detach_filter, 0)
        link.close()

    threading.Timer(seconds, mend).start()


@pytest.mark.parametrize("first", [0, 1], ids=["broadcast first", "barrier first"])
def test_both_workers_learn_of_different_kinds_by_notices_alone(model, monkeypatch, first):
    """Neither needs a query of the switch's tables, which would come only after a second without a result."""
    monkeypatch.setattr(CollectiveCaller, "_inquire", lambda *_: None)

    def body(worker):
        if worker.rank != first:
            model.until(lambda switch: switch.outcomes[Outcome.ADDED])  # the other's contribution has opened the slot
        if worker.rank:
            worker.barrier()
        else:
            worker.broadcast(bytearray(4))

    at_0, at_1 = errors(model, body)
    assert isinstance(at_0, MismatchError) and isinstance(at_1, MismatchError)
    assert "rank 0 calls `broadcast`" in str(at_0) and "another worker calls `barrier`" in str(at_0)
    assert "rank 1 calls `barrier`" in str(at_1) and "another worker calls `broadcast`" in str(at_1)
    assert outcomes(model, Outcome.COLLECTIVE) >= 1


def test_both_workers_learn_of_different_numbers_of_segments(model):
    found = errors(model, lambda worker: worker.allreduce(np.ones(16 * (2 + worker.rank), np.float32)))
    assert all(isinstance(error, MismatchError) and "segments" in str(error) for error in found)


def test_broadcasts_with_different_roots_are_not_added(model):
    found = errors(model, lambda worker: worker.broadcast(bytearray(b"root"), root=worker.rank))
    assert all(isinstance(error, DivergedError) and "different roots" in str(error) for error in found)


def test_workers_whose_applied_results_differ_are_told_at_the_next_step(model):
    def body(worker):
        worker.allreduce(np.ones(40, np.float32))
        if worker.rank:
            worker._ring.progress.checksum ^= 1  # as if one bit of an applied sum had been another
        worker.allreduce(np.ones(40, np.float32))

    found = errors(model, body)
    assert all(isinstance(error, DivergedError) for error in found)


def test_a_lagging_worker_does_not_apply_results_of_another_step(model):
    """With H = 1 the others do not wait, so a worker at another step need not contribute at all."""
    fast, slow = threading.Event(), threading.Event()

    def body(worker):
        array = np.full(40, worker.rank, np.float32)
        if worker.rank:
            worker._ring.progress.position += 1
            fast.wait(20)
            with pytest.raises(MismatchError, match="another collective"):
                worker.allreduce(array)
            slow.set()
        else:
            worker.allreduce(array)
            fast.set()
            slow.wait(20)

    together(model, 2, body, threshold=1)


def _empty(worker):
    worker.allreduce(np.zeros(0, np.float32))


def _read_only(worker):
    array = np.ones(40, np.float32)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        worker.allreduce(array)


@pytest.mark.parametrize("mishap", [_empty, _read_only], ids=["no elements", "read-only"])
def test_a_worker_that_skips_a_step_never_adds_its_next_one(model, mishap):
    """One worker's call sends nothing, and its program goes on to the next step."""

    def body(worker):
        worker.allreduce(np.ones(40, np.float32))
        for _ in range(2):
            if worker.rank:
                mishap(worker)
            worker.allreduce(np.ones(40, np.float32))

    found = errors(model, body)
    assert all(isinstance(error, MismatchError) and "repeated or skipped" in str(error) for error in found)


@pytest.mark.parametrize("elastic", [False, True], ids=["plain", "elastic"])
def test_after_a_reset_workers_agree_on_a_position_before_a_sum(model, elastic):
    """One worker has applied a step more than the other. `sync_state` brings both to one position and digest."""
    done = threading.Barrier(2)

    def body(worker):
        weights = np.zeros(3, np.float32)
        if elastic:
            worker.sync_state(weights, 0)
        worker.allreduce(np.ones(40, np.float32))
        done.wait(20)
        if worker.rank:  # it holds the result of a step that the other has not
            worker._ring.progress.position, worker._ring.progress.checksum = 9, 0xDEADBEEF
            worker.reset()
        done.wait(20)
        try:
            step = worker.sync_state(weights, 8 + worker.rank)
        except JobResetError:
            step = worker.sync_state(weights, 8 + worker.rank)
        assert step == 9 and worker._ring.progress.position == 9 and worker._ring.progress.checksum == 0xDEADBEEF
        gradient = np.ones(40, np.float32)
        worker.allreduce(gradient)
        assert (gradient == 2).all() and worker._ring.progress.position == 10
        return worker._ring.progress.checksum

    one, other = together(model, 2, body, elastic=elastic)
    assert one == other


def test_a_worker_that_does_not_sync_is_not_added_to_one_that_does(model):
    def body(worker):
        if worker.rank:
            worker.allreduce(np.ones(10, np.float32))
        else:
            worker.sync_state(np.zeros(10, np.float32), 3)

    first, second = errors(model, body)
    assert isinstance(first, MismatchError) and "The other worker must call `sync_state`" in str(first)
    assert isinstance(second, MismatchError) and "This worker must call `sync_state`" in str(second)

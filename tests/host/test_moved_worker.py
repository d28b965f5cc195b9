"""A worker whose port of the switch or whose address changes stays in its job."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import AsyncWorker, NotAMemberError, Worker
from iswitch.config import Config
from iswitch.driver.address import resolve
from iswitch.wire import Outcome
from sim.bench.udp_model import UdpModel

PLACES = {"address": (0, Outcome.ADDRESS), "port": (1, Outcome.PORT)}


@pytest.fixture
def model():
    with UdpModel(Config(ports=2, window=4, elements=16, members=4)) as made:
        yield made


def move(worker, model, port):
    """Give the worker's machine another address, and put its cable into a port of the switch."""
    with worker._keepalive:
        worker._transport.inner._peer = resolve(model.address(port))
        worker._transport.reopen()


@pytest.mark.parametrize(("port", "outcome"), PLACES.values(), ids=PLACES)
def test_an_asynchronous_worker_that_moves_stays_in_its_job(model, port, outcome):
    with AsyncWorker(model.address(), world=1, size=40, format="int32", timeout_s=20) as worker:
        for version in range(20):
            if version in (5, 12):
                move(worker, model, port if version == 5 else 0)
            worker.push(np.full(40, version, np.int32))
            while worker.version == version:
                assert worker.wait()
                for update in worker.updates():
                    assert (update.sum == version).all()
        assert model.switch.outcomes[outcome] > 0
        assert worker.close()


@pytest.mark.parametrize(("port", "outcome"), PLACES.values(), ids=PLACES)
def test_a_synchronous_worker_that_moves_stays_in_its_job(model, port, outcome):
    with Worker(model.address(), world=1, timeout_s=20) as worker:
        for step in range(6):
            if step in (2, 4):
                move(worker, model, port if step == 2 else 0)
            gradient = np.full(40, step, np.float32)
            worker.allreduce(gradient)
            assert (gradient == step).all()
        assert model.switch.outcomes[outcome] > 0
        assert worker.close()


def test_a_worker_that_moves_while_it_computes_is_bound_to_its_new_place(model):
    """Its keepalives come from the new place."""
    with Worker(model.address(), world=1, evict_s=0.5) as worker:
        worker.barrier()
        move(worker, model, 1)
        model.until(lambda switch: switch.jobs[0].entries[0].source.port == 1)
        worker.barrier()


def test_an_asynchronous_worker_that_moves_after_its_eviction_is_told(model):
    with AsyncWorker(model.address(), world=1, size=8, timeout_s=20) as worker:
        worker._control.leave(worker._stream.membership)
        move(worker, model, 1)
        with pytest.raises(NotAMemberError, match="make a new AsyncWorker"):
            worker.push(np.zeros(8, np.float32))
            worker.wait()
        assert model.switch.jobs[0].live == 0


def test_workers_that_move_at_once_are_all_bound(model, monkeypatch):
    """Each one that is bound to its new place changes the job's challenge, which the other has just learnt."""
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda rank: Worker(model.address(rank), world=2, rank=rank), range(2))
    move(one, model, 0)
    move(other, model, 1)
    found, rivals = one._control._is_member_elsewhere, [other]

    def be_overtaken(*arguments):
        is_member = found(*arguments)
        if rivals:
            rivals.pop()._rebind()
        return is_member

    monkeypatch.setattr(one._control, "_is_member_elsewhere", be_overtaken)
    with one._keepalive, other._keepalive:
        assert one._rebind().epoch == one._ring.membership.epoch
    assert not rivals and model.switch.jobs[0].live == 0b11
    assert one.close() and other.close()

"""SIGTERM: workers leave their jobs, replay clients close their sessions, and the program's own handler stays in
charge."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

from iswitch import AsyncWorker, NotAMemberError, Worker
from iswitch.config import Config, Replay
from iswitch.driver import termination
from iswitch.driver.termination import call_before_termination
from iswitch.golden.tree_switch import TreeSwitch
from iswitch.replay import Field, ReplayClient
from iswitch.wire import HEADER, Action, JobState, Type, version_type
from sim.bench.udp_model import UdpModel
from sim.bench.until import until
from sim.frames.client import SWITCH_IP, SWITCH_MAC

SMALL = Config(ports=4, window=4, elements=16, members=8)
PROGRAM = """
import os, signal, sys, time
import numpy as np
from iswitch import AsyncWorker, Worker

def stop(*_):
    os.write(1, b"mine\\n")  # not print: the signal may come while print still writes
    sys.exit(7)

{before}
worker = {worker}
{after}
print("ready", flush=True)
{work}
"""
WORKER, BOTH = 'Worker("{address}", world=1)', 'Worker("{address}", world=2, rank=0, key=5)'
ASYNC = 'AsyncWorker("{address}", world=1, size=8)'
OWN = "signal.signal(signal.SIGTERM, stop)"


@pytest.fixture
def model():
    with UdpModel(SMALL) as made:
        yield made


@pytest.fixture
def ended(monkeypatch):
    """What the handler does to this process at its end, instead of ending it."""
    signals = []
    monkeypatch.setattr(termination.os, "kill", lambda pid, number: signals.append((pid, number)))
    yield signals
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def terminate(model, *, worker=WORKER, before="", after="", work="time.sleep(60)", ready="ready\n"):
    """Starts a program, ends it by SIGTERM when it is ready: how it ended, and what it printed after that."""
    text = PROGRAM.format(before=before, after=after, work=work, worker=worker.format(address=model.address()))
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.read(len(ready)) == ready
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, out


@pytest.mark.parametrize("worker", [WORKER, ASYNC], ids=["Worker", "AsyncWorker"])
def test_a_process_that_is_ended_by_sigterm_leaves_its_job(model, worker):
    assert terminate(model, worker=worker) == (-signal.SIGTERM, "")
    assert model.switch.jobs[0].state == JobState.NONE


@pytest.mark.parametrize("where", ["before", "after"])
def test_the_programs_own_handler_decides(model, where):
    assert terminate(model, **{where: OWN}) == (7, "mine\n")
    assert model.switch.jobs[0].state == JobState.NONE  # at the end of the interpreter


@contextmanager
def another_rank(model):
    """Rank 1 of two, a thread of this process that stays until the end of the block."""
    done = threading.Event()

    def work():
        with Worker(model.address(1), world=2, rank=1, key=5):
            done.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_process_in_the_middle_of_a_collective_leaves_its_job():
    with UdpModel(SMALL) as model, another_rank(model):
        assert terminate(model, worker=BOTH, work="worker.allreduce(np.ones(100, np.float32))")[0] == -signal.SIGTERM
        assert model.switch.jobs[0].live == 0b10


class Lossy(UdpModel):
    """Loses the first LEAVE."""

    leaves = 0

    def _pass(self, port, payload, peer):
        if payload[0] == version_type(Type.CONTROL) and payload[HEADER.itemsize] == Action.LEAVE:
            self.leaves += 1
            if self.leaves == 1:
                return []
        return super()._pass(port, payload, peer)


@pytest.mark.parametrize("work", ["worker.barrier()", "time.sleep(60)"])
def test_the_leave_is_repeated_if_its_datagram_is_lost(work):
    with Lossy(SMALL) as model, another_rank(model):
        code, _ = terminate(
            model,
            worker=BOTH,
            work=f"import threading; threading.Timer(0.5, print, ['in it'], dict(flush=True)).start(); {work}",
            ready="ready\nin it\n",
        )
        assert code == -signal.SIGTERM and model.leaves == 2 and model.switch.jobs[0].live == 0b10


def test_after_sigkill_the_same_command_ends_the_abandoned_job(model):
    options = "world=1, rank=0, key=9, evict_s=0.5"
    text = PROGRAM.format(before="", after="", work="time.sleep(60)", worker=f'Worker("{model.address()}", {options})')
    challenges = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.communicate()
        with model.lock:
            challenges.append(model.switch.jobs[0].challenge)
    assert challenges[1] == challenges[0] + 1  # the first job has ended


# In this process


def test_workers_leave_and_the_default_action_follows(model, ended):
    with Worker(model.address(), world=1) as worker, AsyncWorker(model.address(1), world=1, size=8, job=1) as other:
        assert signal.getsignal(signal.SIGTERM) is termination._terminate
        termination._terminate(signal.SIGTERM, None)
        assert ended == [(os.getpid(), signal.SIGTERM)] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert [job.state for job in model.switch.jobs[:2]] == [JobState.NONE] * 2
        assert not worker.close() and not other.close()
    assert not termination._callbacks


def test_a_handler_that_calls_the_one_before_it_ends_the_process_itself(model, ended):
    with Worker(model.address(), world=1):
        previous = signal.signal(signal.SIGTERM, lambda number, frame: previous(number, frame))
        signal.raise_signal(signal.SIGTERM)
        assert model.switch.jobs[0].state == JobState.NONE and not ended


def test_the_handler_does_not_wait_for_a_lock_that_its_own_thread_holds(model, ended):
    """The signal comes in the middle of a collective, which holds the keepalive."""
    with Worker(model.address(), world=1) as worker:
        with worker._keepalive:
            termination._terminate(signal.SIGTERM, None)
        assert ended and model.switch.jobs[0].state == JobState.NONE


def test_the_same_without_epoll(model, ended, monkeypatch):
    monkeypatch.delattr("select.epoll")
    test_the_handler_does_not_wait_for_a_lock_that_its_own_thread_holds(model, ended)


def test_a_silent_switch_delays_the_end_by_a_second_at_most(model, ended):
    with Worker(model.address(), world=1):
        model.deaf = True
        termination._terminate(signal.SIGTERM, None)
        assert ended


def test_a_worker_that_waits_for_the_others_leaves_the_forming_job(model, ended):
    def signal_when_it_waits():
        model.until(lambda switch: switch.jobs[0].live)
        ended.append("waits")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

    threading.Thread(target=signal_when_it_waits).start()
    with pytest.raises(Exception, match="waits for 2 workers"):
        Worker(model.address(), world=2, rank=0, join_timeout_s=1)
    assert ended == ["waits", (os.getpid(), signal.SIGTERM)]


def test_a_worker_in_rejoin_leaves_the_place_that_it_waits_in(model, ended, monkeypatch):
    """The switch restarts; the worker creates the job again, and waits for the others."""

    def other():
        with Worker(model.address(1), world=2, rank=1):
            pass

    thread = threading.Thread(target=other)
    thread.start()
    with Worker(model.address(), world=2, rank=0) as worker:
        thread.join()
        with model.lock:
            model.switch = TreeSwitch(SMALL, mac=SWITCH_MAC, ip=SWITCH_IP, seed=99)
        with pytest.raises(NotAMemberError):
            worker.barrier()
        states = []
        monkeypatch.setattr(termination.os, "kill", lambda *_: states.append(model.switch.jobs[0].state))

        def signal_when_it_waits():
            model.until(lambda switch: switch.jobs[0].live)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

        thread = threading.Thread(target=signal_when_it_waits)
        thread.start()
        with pytest.raises(Exception, match="waits for 2 workers"):
            worker.rejoin(timeout_s=2)
        thread.join()
        assert states == [JobState.NONE]


def test_a_handler_of_the_program_and_an_ignored_signal_stay(model):
    for handler in (signal.SIG_IGN, lambda *_: None):
        before = signal.signal(signal.SIGTERM, handler)
        try:
            with Worker(model.address(), world=1):
                assert signal.getsignal(signal.SIGTERM) is handler
        finally:
            signal.signal(signal.SIGTERM, before)


def test_after_the_last_worker_the_signal_has_its_default_action_again(model):
    with Worker(model.address(), world=1):
        with Worker(model.address(1), world=1, job=1):
            pass
        assert signal.getsignal(signal.SIGTERM) is termination._terminate
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
def test_a_worker_that_the_program_drops_leaves_its_job(model, kind):
    """Neither the handler of the signal nor a thread keeps it, as in a notebook whose cell runs twice. If its thread
    is at work for it just then, that thread closes it, and forgets the handler after the switch has seen it leave."""
    worker = kind(model.address(), world=1, **{"size": 8} if kind is AsyncWorker else {})
    dropped = weakref.ref(worker)
    gc.disable()  # no cycle of references may keep the worker until a collection of garbage happens
    try:
        del worker
        model.until(lambda switch: switch.jobs[0].state == JobState.NONE)
        until(lambda: dropped() is None and not termination._callbacks, seconds=5)
    finally:
        gc.enable()


def test_other_threads_set_no_handler():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a worker that its own thread has closed leaves the handler
    thread = threading.Thread(target=lambda: call_before_termination(print))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not termination._callbacks


def test_a_forked_child_does_not_leave_for_its_parent(model):
    with Worker(model.address(), world=1) as worker:
        if (child := os.fork()) == 0:
            try:
                worker.barrier()
            except NotAMemberError as error:
                if "is its child: make a Worker in each process" in str(error):
                    signal.raise_signal(signal.SIGTERM)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        worker.barrier()
        assert worker.close()


# Clients of the replay service

REPLAY_PROGRAM = """
import time
import numpy as np
from iswitch.replay import Field, ReplayClient

client = ReplayClient("{address}", {{"a": Field((), np.int32)}}, wait_s=60)
print("ready", flush=True)
{work}
"""


@pytest.mark.parametrize("work", ["time.sleep(60)", "client.sample(4, min_adds=100)"], ids=["idle", "in a call"])
def test_a_process_that_is_ended_by_sigterm_closes_its_replay_session(work):
    with UdpModel(Config(ports=2, members=4, replay=Replay(capacity=64, log_bytes=4096))) as model:
        text = REPLAY_PROGRAM.format(address=model.address(), work=work)
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)
            assert [session.open for session in model.switch.service.sessions].count(True) == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == -signal.SIGTERM
        finally:
            process.kill()
        assert not any(session.open for session in model.switch.service.sessions)


def test_a_closed_replay_client_has_nothing_to_do_at_the_end():
    with UdpModel(Config(ports=2, members=4, replay=Replay(capacity=64, log_bytes=4096))) as model:
        with ReplayClient(model.address(), {"a": Field((), np.int32)}):
            assert termination._callbacks
        assert not termination._callbacks and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

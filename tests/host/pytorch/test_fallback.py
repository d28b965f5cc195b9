"""A step that the switch cannot complete is completed over gloo, by all ranks or by none, with the same bits.

The switch of these tests is a record in memory, which can fail at each collective for each set of ranks: before a rank
receives the result, or after. So all cases of a failure are tried, and not those that the clock brings about.
"""

import itertools
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from iswitch import ClosedError, SwitchUnreachableError
from iswitch.results import Reduction
from iswitch.torch import fallback
from iswitch.torch.fallback import FallbackReducer, FallbackWarning
from iswitch.torch.reducer import GlooReducer, WorkersMissingError
from iswitch.wire import RESULT_HEADER
from sim.bench.udp_model import UdpModel
from tests.host.pytorch.ranks import TIMEOUT, run_ranks

pytestmark = pytest.mark.filterwarnings("ignore::iswitch.torch.fallback.FallbackWarning")
STEPS = 5
ROOT = Path(__file__).parents[3]


class MemorySwitch:
    """Sums in memory. `lost` are the ranks that do not receive the result of collective `fails_at` of the first period.

    After that no rank receives anything, until `alive` is set.
    """

    def __init__(self, size, *, fails_at=None, lost=(), silent=()):
        self.size, self.fails_at, self.lost, self.silent = size, fails_at, set(lost), set(silent)
        self.condition = threading.Condition()
        self.given, self.alive = {}, threading.Event()
        self.dead: set[int] = set()

    def die(self, rank):
        with self.condition:
            self.dead.add(rank)
            self.condition.notify_all()

    def worker(self, rank, period):
        if period and not self.alive.is_set():
            raise SwitchUnreachableError("no switch")
        return MemoryWorker(self, rank, period)


class MemoryWorker:
    address = "memory"

    def __init__(self, switch, rank, period):
        self.switch, self.rank, self.period = switch, rank, period
        self.collective, self.closed = 0, False

    def close(self):
        with self.switch.condition:
            self.closed = True
            self.switch.condition.notify_all()

    def allreduce(self, values):
        switch, key = self.switch, (self.period, self.collective)
        self.collective += 1
        with switch.condition:
            if self.period == 0 and switch.fails_at is not None and key[1] > switch.fails_at:
                raise SwitchUnreachableError("it has failed")
            fails = key == (0, switch.fails_at)
            if fails and self.rank in switch.silent:  # the frames of this rank never reach the switch
                raise SwitchUnreachableError("it does not answer")
            switch.given.setdefault(key, {})[self.rank] = values.copy()
            switch.condition.notify_all()
            while len(switch.given[key].keys() | switch.dead) < switch.size:
                if self.closed:
                    raise ClosedError("closed")
                assert switch.condition.wait(20)
            if fails and self.rank in switch.lost:
                values[: len(values) // 2] = 77  # a part of the result has come
                raise SwitchUnreachableError("it does not answer")
            given = switch.given[key]
            values[:] = np.sum(list(given.values()), axis=0)
        headers = np.zeros(1, RESULT_HEADER)
        headers["members"] = sum(2**rank for rank in given)
        return Reduction(switch.size, values.size, 0, headers)


def vector(rank, step):
    return np.random.default_rng([rank, step]).integers(-999, 999, 5 + step).astype((np.float32, np.int32)[step % 2])


def train(switch, *, alive_at=None, timeout=TIMEOUT):
    """Sum `STEPS` vectors at each rank. Return, by rank, the sums, and whether the switch is used at each step and at
    the end."""

    def body(rank, store):
        gloo = GlooReducer.open(dist.PrefixStore("gloo", store), rank, switch.size, timeout, 44)
        reducer = FallbackReducer(
            lambda period: switch.worker(rank, period),
            gloo,
            store,
            rank,
            switch.size,
            answers=lambda address: switch.alive.is_set(),
        )
        sums, used = [], []
        for step in range(STEPS):
            if alive_at == step:
                switch.alive.set()
                while not reducer._switch_answers and not reducer.uses_switch:
                    time.sleep(0.001)
            used.append(reducer.uses_switch)
            values = vector(rank, step)
            assert reducer.sum(values) is False
            sums.append(values.tolist())
        used.append(reducer.uses_switch)
        reducer.finish()
        reducer.close()
        return sums, used

    return run_ranks(switch.size, body)


def expected(size):
    return [np.sum([vector(rank, step) for rank in range(size)], axis=0).tolist() for step in range(STEPS)]


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(fallback, "_CHECK_S", 0.01)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("fails_at", [0, 2, STEPS - 2])
def test_a_switch_that_fails_at_any_moment_changes_no_sum(size, fails_at):
    for count in range(1, size + 1):
        for lost in itertools.combinations(range(size), count):
            for sums, used in train(MemorySwitch(size, fails_at=fails_at, lost=lost)):
                assert sums == expected(size), lost
                assert not used[-1]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_wait_for_one_whose_switch_is_silent_join_it_over_gloo(size):
    """The others wait at a switch that answers them: only the flag in the store can end that."""
    for silent in range(size):
        with pytest.warns(FallbackWarning) as said:
            results = train(MemorySwitch(size, fails_at=1, silent=[silent]))
        for sums, used in results:
            assert sums == expected(size)
            assert used == [True, True, False, False, False, False]
        left = f"rank {silent} has left the switch: it does not answer" if silent else "again: it does not answer"
        assert str(said[0].message).endswith(left)


def test_all_ranks_return_to_the_switch_at_the_same_collective():
    switch = MemorySwitch(3, fails_at=0, lost=[0, 1, 2])
    results = train(switch, alive_at=2)
    assert [used for _, used in results] == [[True, False, False, True, True, True]] * 3
    assert all(sums == expected(3) for sums, _ in results)
    assert {period for period, _ in switch.given} == {0, 1}


def test_a_return_that_fails_at_one_rank_keeps_all_at_gloo():
    switch = MemorySwitch(3, fails_at=0, lost=[0, 1, 2])
    made = switch.worker

    def worker(rank, period):
        if period == 1 and rank == 2:
            raise SwitchUnreachableError("not this rank")
        return made(rank, period)

    switch.worker = worker
    for sums, used in train(switch, alive_at=1):
        assert sums == expected(3)
        assert used[:3] == [True, False, False]


def test_a_sum_without_fallback_warnings_uses_the_switch_throughout(recwarn):
    for sums, used in train(MemorySwitch(2)):
        assert sums == expected(2) and all(used)
    assert not [warning for warning in recwarn if issubclass(warning.category, FallbackWarning)]


@pytest.mark.parametrize("lost", [(0,), (1, 2)])
def test_a_failure_in_the_last_sum_is_repaired_before_any_rank_leaves(lost):
    """A rank with the result waits in `finish` for the ranks that lack it."""
    for sums, _ in train(MemorySwitch(3, fails_at=STEPS - 1, lost=lost)):
        assert sums == expected(3)


@pytest.mark.parametrize("seen", ["by the switch", "by gloo", "later"])
def test_a_rank_that_has_died_is_one_error_of_the_others_without_a_warning(seen, recwarn):
    """The switch finds that it is absent, or the switch has failed, too, or gloo sums already."""
    switch = MemorySwitch(3, fails_at=None if seen == "by the switch" else 0, silent=range(3))
    met = threading.Barrier(3)

    def body(rank, store):
        gloo = GlooReducer.open(dist.PrefixStore("gloo", store), rank, 3, TIMEOUT, 44)
        reducer = FallbackReducer(
            lambda period: switch.worker(rank, period), gloo, store, rank, 3, answers=lambda address: False
        )
        values = np.ones(5, np.float32)
        if seen == "later":
            assert reducer.sum(values) is False
            recwarn.clear()
        met.wait(20)
        if rank == 1:
            reducer.close()
            del reducer, gloo  # its connections end
            switch.die(1)
            return None
        values[:] = 7
        with pytest.raises(WorkersMissingError, match=r"Start the script again") as raised:
            reducer.sum(values)
        assert (values == 7).all()
        reducer.close()
        return str(raised.value)

    first, _, third = run_ranks(3, body)
    words = {"by the switch": "lacks rank 1", "by gloo": "it does not answer. And gloo does not reach", "later": "gloo"}
    for text in (first, third):
        assert words[seen] in text and ".cc" not in text and text.count("Start the script again") == 1
    assert not [warning for warning in recwarn if issubclass(warning.category, FallbackWarning)]


def test_close_leaves_no_thread_that_holds_the_group_of_gloo():
    """A thread that drops the last reference while the interpreter ends would abort the process."""
    probes, reducer_closes, switch = threading.Event(), threading.Event(), MemorySwitch(1, fails_at=0, silent=[0])

    def answers(address):
        probes.set()
        reducer_closes.wait(20)
        time.sleep(0.2)  # the probe goes on for a while: without a wait in `close`, the thread is seen below
        return False

    def body(rank, store):
        before = set(threading.enumerate())
        gloo = GlooReducer.open(dist.PrefixStore("gloo", store), rank, 1, TIMEOUT, 44)
        reducer = FallbackReducer(lambda period: switch.worker(rank, period), gloo, store, rank, 1, answers=answers)
        reducer.sum(np.ones(5, np.float32))
        assert probes.wait(20)
        reducer_closes.set()
        reducer.close()
        return set(threading.enumerate()) - before

    assert run_ranks(1, body) == [set()]


def test_a_script_that_ends_while_the_switch_is_probed_leaves_no_thread_to_the_end_of_the_interpreter():
    script = (
        "import atexit, threading\n"
        "atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # the last one to run\n"
        "import sys, torch, torch.distributed as dist, iswitch.torch\n"
        "from iswitch.torch import fallback\n"
        "fallback._CHECK_S = 0.01\n"
        "options = iswitch.torch.Options(address=sys.argv[1], fallback='gloo', switch_timeout_s=0.3)\n"
        "dist.init_process_group('cpu:iswitch', store=dist.HashStore(), rank=0, world_size=1, pg_options=options)\n"
        "print('joined', flush=True)\n"
        "sys.stdin.readline()\n"
        "tensor = torch.ones(5)\n"
        "dist.all_reduce(tensor)\n"
        "assert tensor.tolist() == [1] * 5\n"
    )
    with UdpModel() as model:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, model.address()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "joined\n"
        model.deaf = True
        threads, errors = process.communicate("\n", timeout=60)
    assert process.returncode == 0 and not errors, errors
    assert "MainThread" in threads and "iswitch-fallback" not in threads


def no_comparison(monkeypatch):
    monkeypatch.setattr(FallbackReducer, "_result_of_others", lambda self, values: None)


def result_not_kept(monkeypatch):
    def keep(self, values, tainted):
        self._completed += 1

    monkeypatch.setattr(FallbackReducer, "_keep", keep)


MUTANTS = {"none": lambda monkeypatch: None, "no comparison": no_comparison, "result not kept": result_not_kept}


def check_two_ranks(mutant):
    """Run the law with a mutant. gloo aborts the process if the ranks' sizes differ."""
    MUTANTS[mutant](pytest.MonkeyPatch())
    for lost in ((0,), (1,), (0, 1)):
        for sums, _ in train(MemorySwitch(2, fails_at=1, lost=lost), timeout=timedelta(seconds=3)):
            assert sums == expected(2)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_gives_other_sums_or_stops(mutant):
    """In a new process: a fork would take over locks that threads of earlier tests hold."""
    call = f"from tests.host.pytorch.test_fallback import check_two_ranks; check_two_ranks({mutant!r})"
    done = subprocess.run([sys.executable, "-c", call], cwd=ROOT, capture_output=True, timeout=120)
    assert (done.returncode == 0) == (mutant == "none"), done.stderr

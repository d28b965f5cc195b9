"""Jobs whose workers die, come back, pause and fall behind: drivers against the golden switch."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import (
    CollectiveTimeoutError,
    HaltedWarning,
    JobResetError,
    MembershipChangedError,
    NotAMemberError,
    RefusedError,
    Worker,
)
from iswitch.config import Config
from iswitch.control.state_transfer import CANDIDATE, TakesPart, most_advanced
from iswitch.golden.switch import Switch
from iswitch.wire import CollectiveKind, Format
from sim.bench.udp_model import Faults, UdpModel, kill, together
from sim.frames.client import SWITCH_IP, SWITCH_MAC

SMALL = Config(ports=4, window=4, elements=16, members=8)
BAD = Faults(loss=0.05, duplication=0.05, reordering=0.05)
EVICT_S = 2.0  # a starved thread on a busy machine must not look dead
pytestmark = pytest.mark.filterwarnings("ignore:rank.* not in the sum")


@pytest.fixture(params=[Faults(), BAD], ids=["sound", "bad network"])
def model(request):
    with UdpModel(SMALL, faults=request.param) as made:
        yield made


class Trainee:
    """A replica: its weights are the sum of all gradients so far, and its gradient is made of step and rank."""

    def __init__(self, worker: Worker):
        self.worker, self.step, self.weights = worker, 0, np.zeros(50, np.float32)
        self.missing: list[tuple[int, ...]] = []

    def train(self, steps: int, *, until: threading.Event | None = None, kept: int = 0) -> None:
        """Train for a number of steps; with `until`, at least `kept` more steps after that holds."""
        while self.step < steps or (until and not until.is_set()):
            try:
                if self.worker.needs_sync:
                    self.step = self.worker.sync_state([self.weights], self.step)
                    continue
                gradient = np.full(50, (self.step + 1) * (self.worker.rank + 1), np.float32)
                self.missing.append(self.worker.allreduce(gradient).missing)
            except NotAMemberError:
                self.worker.rejoin()
                continue
            self.weights += gradient
            self.step += 1
            if until and until.is_set() and kept:
                steps, until = max(steps, self.step + kept), None


def test_training_goes_on_without_a_killed_worker_which_comes_back_with_the_same_weights(model):
    died, back = threading.Event(), threading.Event()
    with ThreadPoolExecutor(3) as pool:

        def survivor(rank: int) -> Trainee:
            with Worker(model.address(rank), world=3, rank=rank, evict_s=EVICT_S, timeout_s=20) as worker:
                trainee = Trainee(worker)
                worker.sync_state([trainee.weights], 0)
                trainee.train(5)
                while trainee.step < 20_000 and not (back.is_set() and trainee.step >= goal[0]):
                    trainee.train(trainee.step + 1)
                return trainee

        def victim() -> Trainee:
            worker = Worker(model.address(2), world=3, rank=2, evict_s=EVICT_S, timeout_s=20)
            trainee = Trainee(worker)
            worker.sync_state([trainee.weights], 0)
            trainee.train(5)
            kill(worker)
            died.set()
            with Worker(model.address(3), world=3, rank=2, evict_s=EVICT_S, timeout_s=20, elastic=True) as again:
                assert again.needs_sync
                trainee = Trainee(again)
                while trainee.step < 20_000 and not (back.is_set() and trainee.step >= goal[0]):
                    trainee.train(trainee.step + 1)
                    if trainee.step and not back.is_set():
                        goal[0] = trainee.step + 20
                        back.set()
                return trainee

        goal = [20_000]
        first, second, third = [pool.submit(survivor, rank) for rank in (0, 1)] + [pool.submit(victim)]
        trainees = [future.result(timeout=60) for future in (first, second, third)]
    assert len({trainee.step for trainee in trainees}) == 1
    assert len({trainee.weights.tobytes() for trainee in trainees}) == 1
    assert (2,) in trainees[0].missing and trainees[0].missing[-1] == () == trainees[2].missing[-1]
    assert model.switch.counters()["stat.EVICTED"] == 1


def test_the_members_create_their_job_again_after_a_restart_of_the_switch():
    with UdpModel(SMALL) as model:

        def body(worker):
            trainee = Trainee(worker)
            worker.sync_state([trainee.weights], 0)
            trainee.train(10)
            if worker.rank == 0:
                with model.lock:
                    model.switch = Switch(SMALL, mac=SWITCH_MAC, ip=SWITCH_IP, seed=99)
            trainee.train(20)
            return trainee

        trainees = together(model, 3, body, timeout_s=20, evict_s=0)
    assert {trainee.step for trainee in trainees} == {20}
    assert len({trainee.weights.tobytes() for trainee in trainees}) == 1
    expected = sum(range(1, 21)) * 6
    assert trainees[0].weights[0] == expected


@pytest.mark.parametrize("steps", [(0, 7, 3), (5, 2, 5), (2**40, 0, 2**31), (2**62 - 1, 0, 2**62 - 2)])
def test_sync_state_copies_the_most_advanced_state_bit_for_bit(model, steps):
    states = [np.random.default_rng(rank).integers(0, 256, 777, np.uint8) for rank in range(3)]
    others = [np.array([[rank, -0.0], [np.nan, 2.0**-149]], np.float64) for rank in range(3)]

    def body(worker):
        mine = states[worker.rank].copy(), others[worker.rank].copy()
        return worker.sync_state(mine, steps[worker.rank]), mine

    root = max(range(3), key=lambda rank: (steps[rank], -rank))
    for step, (octets, floats) in together(model, 3, body):
        assert step == steps[root]
        assert octets.tobytes() == states[root].tobytes() and floats.tobytes() == others[root].tobytes()


def test_sync_state_takes_another_state_when_the_chosen_worker_dies_meanwhile():
    """Rank 2 is ahead, takes part in the election, and is gone."""
    with UdpModel(SMALL) as model:

        def body(worker):
            state = np.full(40, worker.rank, np.int32)
            if worker.rank == 2:
                election = np.zeros(3, CANDIDATE)
                election[2] = 1, 9, 0, 0, 0
                worker._collect(election.view("<i4"), Format.INT32, CollectiveKind.ELECTION, all_members=True)
                return kill(worker)
            return worker.sync_state(state, worker.rank), state.tolist()

        answers = together(model, 3, body, evict_s=EVICT_S, timeout_s=20)
    assert answers[:2] == [(1, [1] * 40)] * 2


def test_the_lowest_rank_with_the_highest_step_is_most_advanced():
    table = np.array([(1, 5, 0, 0, 0), (0, 9, 9, 0, 0), (1, 5, 0, 0, 0), (1, 4, 0, 0, 0)], CANDIDATE)
    assert most_advanced(table) == (0, 5)
    assert most_advanced(np.array([(1, 2**31 - 1, 0, 0, 0), (1, 0, 1, 0, 0)], CANDIDATE)) == (1, 2**31)
    newcomer = (TakesPart.WITHOUT_STATE, 7, 0, 0, 0)
    assert most_advanced(np.array([newcomer, (TakesPart.WITH_STATE, 0, 0, 0, 0)], CANDIDATE)) == (1, 0)
    assert most_advanced(np.array([newcomer, (0, 0, 0, 0, 0)], CANDIDATE)) == (None, -1)


def test_a_new_worker_never_goes_on_without_the_state_of_the_running_job():
    """The only worker that has the state takes part in the election, and dies before it sends the state."""
    options = {"world": 2, "elastic": True, "evict_s": 0.5, "timeout_s": 2}
    with UdpModel(SMALL) as model, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: Worker(model.address(rank), rank=rank, **options), range(2))
        list(pool.map(lambda worker: worker.sync_state(np.zeros(40), 5), (first, second)))
        second.close()

        def go_on():
            while not first.needs_sync:
                first.allreduce(np.ones(8, np.float32))
            election = np.zeros(2, CANDIDATE)
            election[0] = TakesPart.WITH_STATE, 5, 0, 0, 0
            first._collect(election.view("<i4"), Format.INT32, CollectiveKind.ELECTION, all_members=True)
            kill(first)

        dead = pool.submit(go_on)
        with Worker(model.address(1), rank=1, **options) as new:
            with pytest.raises(CollectiveTimeoutError, match=r"state of job 0.*`iswitch end-job`"):
                new.sync_state(np.zeros(40), 0)
        dead.result()


def test_a_reset_does_not_make_a_new_worker_go_on_without_the_state():
    """The switch no longer knows which members are new after a RESET, so it keeps the job when the others leave."""
    options = {"world": 2, "elastic": True, "timeout_s": 2}
    with UdpModel(SMALL) as model, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: Worker(model.address(rank), rank=rank, **options), range(2))
        list(pool.map(lambda worker: worker.sync_state(np.zeros(40), 5), (first, second)))
        second.close()
        joined = pool.submit(Worker, model.address(1), rank=1, **options)
        while not first.needs_sync:
            first.allreduce(np.ones(8, np.float32))
        with joined.result() as new:
            first.reset()
            first.close()
            with pytest.raises(JobResetError):
                new.sync_state(np.zeros(40), 0)
            with pytest.raises(CollectiveTimeoutError, match=r"state of job 0.*`iswitch end-job`"):
                new.sync_state(np.zeros(40), 0)


def test_collectives_raise_until_sync_state_once_workers_have_joined():
    with UdpModel(SMALL) as model:
        left = threading.Event()

        def body(worker):
            if worker.rank == 1:
                worker.close()
                left.set()
                with Worker(model.address(1), world=2, elastic=True) as again:
                    state = np.zeros(3)
                    again.sync_state(state, 0)
                    return state[0]
            left.wait(5)
            while not worker.needs_sync:
                worker.allreduce(np.ones(3, np.float32))
            with pytest.raises(MembershipChangedError, match="call `sync_state`"):
                worker.allreduce(np.ones(3, np.float32))
            worker.sync_state(np.full(3, 7.0), 0)
            return 7.0

        assert together(model, 2, body) == [7.0, 7.0]


def test_a_running_job_is_not_joined_unless_elastic():
    with UdpModel(SMALL) as model:

        def body(worker):
            if worker.rank == 1:
                worker.close()
                message = (
                    r"the job is running already\. To go on, .*elastic=True.*Rank 0 .*is alive.*`iswitch end-job "
                    r"--job 0 --key .* --switch"
                )
                with pytest.raises(RefusedError, match=message):
                    Worker(model.address(1), world=2)
                refused.set()
            else:
                assert refused.wait(30)

        refused = threading.Event()
        together(model, 2, body)


def test_a_halted_job_waits_and_goes_on():
    with UdpModel(SMALL) as model:

        def body(worker):
            worker.barrier()
            if worker.rank == 0:
                worker.halt()
                halted.set()
                time.sleep(0.8)  # the silent time is the subject: twice the other one's time-out
                worker.resume()
            else:
                assert halted.wait(30)
            array = np.ones(100, np.float32)
            worker.allreduce(array)
            return array.tolist()

        halted = threading.Event()
        with pytest.warns(HaltedWarning):
            assert together(model, 2, body, timeout_s=0.4) == [[2.0] * 100] * 2


def test_a_deadline_completes_sums_without_the_slow_and_names_them():
    with UdpModel(SMALL) as model:

        def body(worker):
            worker.barrier()
            if worker.rank == 2:
                assert summed.wait(30)
            array = np.full(16 * 9, worker.rank + 1.0, np.float32)
            missing = worker.allreduce(array, op="mean").missing
            summed.set()
            worker.barrier()
            return missing, set(array.tolist())

        summed = threading.Event()
        assert together(model, 3, body, deadline_s=0.2, timeout_s=20) == [((2,), {1.5})] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evict_s": 0.001}, "evict_s must be 0, or 0.016 to 536.9"),
        ({"evict_s": -1}, "evict_s must be"),
        ({"deadline_s": -0.1}, "deadline_s must be 0 to 2147"),
        ({"deadline_s": 3000}, "deadline_s must be"),
    ],
)
def test_times_out_of_range_raise_before_anything_is_sent(options, message):
    with pytest.raises(ValueError, match=message):
        Worker("127.0.0.1:1", world=1, **options)


def test_an_elastic_job_begins_with_sync_state():
    """Otherwise workers with different first weights would diverge unnoticed."""
    with UdpModel(SMALL) as model, Worker(model.address(), world=1, elastic=True) as worker:
        with pytest.raises(MembershipChangedError, match="call `sync_state` before the next collective"):
            worker.allreduce(np.zeros(3, np.float32))
        worker.sync_state(np.zeros(3), 0)
        worker.allreduce(np.zeros(3, np.float32))


def test_an_interrupted_sync_state_must_be_called_again(monkeypatch):
    """Otherwise the next collective would take the second half of `sync_state` for its own."""
    with UdpModel(SMALL) as model, Worker(model.address(), world=1, elastic=True) as worker:
        reduce = worker._caller.reduce

        def interrupted(*arguments, **options):
            monkeypatch.undo()
            reduce(*arguments, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(worker._caller, "reduce", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.sync_state(np.zeros(3), 0)
        with pytest.raises(MembershipChangedError):
            worker.broadcast(np.zeros(3))
        assert worker.sync_state(np.zeros(3), 4) == 4

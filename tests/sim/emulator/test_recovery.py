"""What workers do when the switch, the network or their processes fail, in virtual time against the compiled switch."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import sim.emulator.cluster
from iswitch import (
    AbandonedJobWarning,
    AsyncWorker,
    CollectiveTimeoutError,
    IswitchError,
    JobResetError,
    MismatchError,
    NotAMemberError,
    RecoverableError,
    RefusedError,
    SwitchUnreachableError,
    Worker,
)
from iswitch.config import Config
from iswitch.control.abandoned_job import AbandonedJobWatch
from iswitch.control.client import Control
from iswitch.control.inspection import JobView
from iswitch.driver.transport import Buffer
from iswitch.wire import CONTROL, HEADER, Action, Outcome, Reason, Register, Type, version_type
from sim.bench.udp_model import kill
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.program import Machine, Program
from sim.emulator.virtual import VirtualTime

SOUND = Machine()
SLOW = Machine(burst_us=480)
LOSSY = Machine(rates=Rates(delay_us=1, loss=0.05, duplicate=0.02))
EVER = 10**9
TICK_US = 20_000
"""How often an idle switch looks at its timers: these tests wait for long, and none is about the ageing of stations."""
pytestmark = pytest.mark.filterwarnings("ignore:rank.* not in the sum")


@pytest.fixture(autouse=True)
def coarse_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.emulator.cluster, "VirtualTime", partial(VirtualTime, tick_us=TICK_US))


def run(
    functions: list[Callable[[Program], Any]],
    *,
    machine: Machine = SOUND,
    slow: int | None = None,
    reverse: bool = False,
    limit_s: float = 1000,
    seed: int = 1,
) -> list[Any]:
    """What each program returns; program k is at port k of one switch, or the last program is at port 0 (`reverse`).

    The switch may take frames of one moment in any order of their ports. The frames of program `slow` come later.
    """
    with Board(Config(), seed=seed) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric, seed=seed)
        for k, function in enumerate(functions):
            port = len(functions) - 1 - k if reverse else k
            cluster.add((0, port), function, name=f"worker {k}", machine=SLOW if k == slow else machine)
        cluster.run(limit_s)
        return [program.result for program in cluster.programs]


class Cable:
    """A program's transport, which carries nothing from `since` until `until`, both in virtual seconds; `up`, `down`:
    in which directions."""

    def __init__(self, program: Program, since: float, until: float, *, up: bool = True, down: bool = True):
        self._inner, self._since, self._until, self._up, self._down = program.transport(), since, until, up, down

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def cut(self) -> bool:
        return self._since <= self._inner.now() < self._until

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        if not (self._up and self.cut):
            self._inner.send(burst, segment_bytes)

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        deadline = self._inner.now() + timeout_s
        while True:
            found = self._inner.receive(into, max(0.0, deadline - self._inner.now()))
            if not (found[0] and self._down and self.cut):
                return found


class WithoutReads(Cable):
    """A cable that loses the messages that read registers from `since` until `until`, and nothing else."""

    def __init__(self, program: Program, since: float, until: float):
        super().__init__(program, since, until, down=False)

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        data = bytes(memoryview(burst).cast("B"))
        is_read = data[0] & 0xF == Type.CONTROL and data[HEADER.itemsize] == Action.READ
        if not (is_read and self.cut):
            self._inner.send(burst, segment_bytes)


# Time-outs


@pytest.mark.parametrize("reverse", [False, True], ids=["ports in order", "ports reversed"])
@pytest.mark.parametrize("since_s", [0.002, 1.0], ids=["at the join", "between collectives"])
def test_a_worker_that_reads_counters_for_long_is_not_evicted(since_s: float, reverse: bool) -> None:
    """A READ is no sign of life, and on a path that loses most frames the READs take seconds. Both workers join at one
    moment. Whichever the switch takes first, rank 1 reads the counters from 1.6 to 2.1 ms."""

    def work(program: Program) -> tuple[int, ...]:
        rank = int(program.name[-1])
        transport = WithoutReads(program, since_s, since_s + 4) if rank else program.transport()
        with Worker(world=2, rank=rank, transport=transport, evict_s=1.0, timeout_s=20) as worker:
            worker.barrier()
            program.sleep(max(0.0, since_s + 0.1 - program.now()))
            if rank:
                worker.counters()
            return worker.allreduce(np.ones(1000, np.float32)).missing

    assert run([work] * 2, reverse=reverse) == [(), ()]


def test_a_rank_that_computes_for_14_s_ends_no_other_with_the_defaults() -> None:
    def work(program: Program) -> float:
        with Worker(world=2, rank=int(program.name[-1]), transport=program.transport()) as worker:
            if worker.rank == 1:
                program.sleep(14)
            array = np.ones(1000, np.float32)
            worker.allreduce(array)
            return float(array[0])

    assert run([work] * 2) == [2.0, 2.0]


def test_a_switch_that_dies_in_the_middle_of_a_collective_is_noticed_in_seconds() -> None:
    def work(program: Program) -> tuple[float, str]:
        with Worker(world=2, rank=int(program.name[-1]), transport=Cable(program, 5, EVER)) as worker:
            worker.barrier()
            if worker.rank == 1:
                program.sleep(8)
            begun = program.now()
            with pytest.raises(SwitchUnreachableError) as caught:
                worker.barrier()
            return program.now() - begun, str(caught.value)

    for took, message in run([work] * 2):
        assert (
            took < 20
            and "has not answered for 10 s (`switch_timeout_s`)" in message
            and "`rejoin(timeout_s=...)`" in message
        )


def test_an_asynchronous_worker_notices_a_dead_switch_in_seconds() -> None:
    def work(program: Program) -> float:
        with AsyncWorker(world=1, size=10, transport=Cable(program, 1, EVER)) as worker:
            worker.push(np.ones(10, np.float32))
            assert worker.wait() and len(list(worker.updates())) == 1
            program.sleep(2)
            begun = program.now()
            worker.push(np.ones(10, np.float32))
            with pytest.raises(SwitchUnreachableError, match=r"10 s \(`switch_timeout_s`\)"):
                worker.wait()
            return program.now() - begun

    assert 10 < run([work])[0] < 15


def test_the_switch_is_asked_nothing_while_results_come() -> None:
    def work(program: Program) -> int:
        with Worker(world=2, transport=program.transport()) as worker:
            worker.barrier()
            before = worker.counters()["CONTROL"]
            asked = worker.counters()["CONTROL"] - before
            for _ in range(200):
                worker.allreduce(np.ones(2000, np.float32))
                program.sleep(0.01)
            worker.barrier()
            return worker.counters()["CONTROL"] - before - asked

    # Both read the counters, at different times; 400 collectives alone would be 400 questions and more.
    assert max(run([work] * 2)) < 150


def test_a_time_out_names_its_parameter_and_whom_it_waits_for() -> None:
    def work(program: Program) -> str:
        with Worker(world=2, rank=int(program.name[-1]), transport=program.transport(), timeout_s=5) as worker:
            if worker.rank == 1:
                program.sleep(8)
                return ""
            with pytest.raises(
                CollectiveTimeoutError,
                match=r"no result for 5 s \(`timeout_s`\).*rank 1 is not in this collective.*raise `timeout_s`",
            ) as caught:
                worker.barrier()
            return str(caught.value)

    assert run([work] * 2)[0]


# Recovery

STEPS = 40


def train(
    worker: Worker, program: Program, *, compute_s: float = 0.2, recover_s: float = 60
) -> tuple[np.ndarray, list[str]]:
    """The loop of the README. A worker's gradient is the number of its step, so a sum that mixes steps is not the world
    times that."""
    weights, errors = np.zeros(50, np.float64), []
    step = worker.sync_state(weights, 0)
    while step < STEPS:
        try:
            if worker.needs_sync:
                step = worker.sync_state(weights, step)
                continue
            program.sleep(compute_s)
            gradient = np.full(50, step, np.float32)
            worker.allreduce(gradient, op="mean")
        except RecoverableError as error:
            errors.append(type(error).__name__)
            worker.rejoin(timeout_s=recover_s)
            continue
        assert set(gradient.tolist()) == {float(step)}
        weights += gradient
        step += 1
    return weights, errors


@pytest.mark.parametrize("machine", [SOUND, LOSSY], ids=["sound", "lossy"])
def test_the_recovery_loop_survives_a_switch_that_is_away_for_20_s(machine: Machine) -> None:
    def work(program: Program) -> tuple[np.ndarray, list[str]]:
        with Worker(world=3, rank=int(program.name[-1]), transport=Cable(program, 3, 23)) as worker:
            return train(worker, program)

    trained = run([work] * 3, machine=machine)
    assert all(np.array_equal(weights, np.full(50, sum(range(STEPS)))) for weights, _ in trained)
    assert any("SwitchUnreachableError" in errors for _, errors in trained)


def test_a_worker_whose_link_is_down_for_20_s_comes_back_to_the_others() -> None:
    def work(program: Program) -> tuple[np.ndarray, list[str]]:
        rank = int(program.name[-1])
        with Worker(world=3, rank=rank, transport=Cable(program, 3, 23 if rank == 1 else 3)) as worker:
            return train(worker, program, compute_s=1.0)

    trained = run([work] * 3)
    assert all(np.array_equal(weights, np.full(50, sum(range(STEPS)))) for weights, _ in trained)
    assert trained[1][1] and not trained[0][1]


def test_no_step_is_added_to_another_when_a_result_reaches_only_one_worker() -> None:
    """A worker's downlink is dead for longer than its `timeout_s`: the other one has the sum, and is a step ahead."""

    def work(program: Program) -> tuple[np.ndarray, list[str]]:
        rank = int(program.name[-1])
        with Worker(
            world=2,
            rank=rank,
            timeout_s=1.0,
            switch_timeout_s=3.0,
            transport=Cable(program, 2.1, 4.5 if rank == 0 else 2.1, up=False),
        ) as worker:
            return train(worker, program)

    trained = run([work] * 2)
    assert all(np.array_equal(weights, np.full(50, sum(range(STEPS)))) for weights, _ in trained)
    assert trained[0][1] and trained[1][1]


def test_rejoin_says_for_how_long_it_tried_and_can_be_called_again() -> None:
    def work(program: Program) -> tuple[float, int]:
        with Worker(world=1, transport=Cable(program, 1, 20), switch_timeout_s=2) as worker:
            program.sleep(2)
            with pytest.raises(SwitchUnreachableError):
                worker.barrier()
            with pytest.raises(IswitchError, match="Call `rejoin`, then `sync_state`"):
                worker.barrier()
            begun = program.now()
            with pytest.raises(
                SwitchUnreachableError,
                match=r"has not answered for 5 s.*`timeout_s` of 5 s; call it again to wait longer",
            ):
                worker.rejoin(timeout_s=5)
            tried = program.now() - begun
            worker.rejoin(timeout_s=600)
            return tried, worker.sync_state(np.zeros(3), 5)

    ((tried, step),) = run([work])
    assert 5 - 1e-6 <= tried < 7 and step == 5  # a difference of rounded times


def test_rejoin_pauses_between_its_tries() -> None:
    """A transport that cannot send says so at once."""

    class Refusing(Cable):
        tries = 0

        def send(self, burst: Buffer, segment_bytes: int) -> None:
            if self.cut:
                self.tries += 1
                assert self.tries < 1000
                raise SwitchUnreachableError("no route")
            super().send(burst, segment_bytes)

    def work(program: Program) -> int:
        transport = Refusing(program, 1, 20)
        with Worker(world=1, transport=transport) as worker:
            with worker._keepalive:  # which would meet the same error
                program.sleep(2)
                worker._recovery.failure = "an earlier collective failed"
                with pytest.raises(SwitchUnreachableError, match="call it again to wait longer"):
                    worker.rejoin(timeout_s=5)
                return transport.tries

    assert run([work])[0] < 100


class Echo(Cable):
    """A sound transport that keeps the notices of another epoch, and can bring one again."""

    def __init__(self, program: Program):
        super().__init__(program, 0, 0)
        self.notices: list[bytes] = []
        self.late = b""

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if late := self.late:
            self.late, into[: len(late)] = b"", late
            return len(late), len(late)
        size, segment_bytes = super().receive(into, timeout_s)
        if size and into[0] == version_type(Type.NOTICE) and into[HEADER.fields["count"][1]] == Reason.EPOCH:
            self.notices.append(bytes(into[:segment_bytes]))
        return size, segment_bytes


def test_a_late_notice_of_an_earlier_epoch_changes_nothing() -> None:
    def work(program: Program) -> list[float]:
        transport, sums = Echo(program), []
        with Worker(world=2, rank=int(program.name[-1]), transport=transport) as worker:
            for _ in range(2):
                if worker.rank == 0:
                    program.sleep(0.5)
                    worker.reset()
                else:
                    with pytest.raises(JobResetError):
                        worker.barrier()
                worker.sync_state(np.zeros(1), 0)
            for step in range(6):
                if worker.rank == 1 and step in (2, 4):
                    transport.late = transport.notices[0]
                array = np.full(1000, step, np.float32)
                worker.allreduce(array)
                sums.append(float(array[-1]))
        return sums

    assert run([work] * 2) == [[2.0 * step for step in range(6)]] * 2


def test_rejoin_in_step_does_nothing() -> None:
    def work(program: Program) -> int:
        with Worker(world=1, transport=program.transport()) as worker:
            worker.barrier()
            worker.rejoin()
            worker.barrier()
            return worker.segments_completed

    assert run([work]) == [2]


# Jobs that dead workers left behind


def left_behind(program: Program, rank: int, at: float, **options: Any) -> None:
    """A worker of a job that is at work, and is killed."""
    worker = Worker(rank=rank, transport=program.transport(), **options)
    if options["world"] > 1:
        worker.barrier()
    program.sleep(at - program.now())
    kill(worker)


def restarted(program: Program, **options: Any) -> tuple[float, int]:
    begun = program.now()
    with Worker(world=4, rank=int(program.name[-1]), transport=program.transport(), **options) as worker:
        if worker.needs_sync:
            worker.sync_state(np.zeros(3), 0)
        array = np.ones(1000, np.float32)
        worker.allreduce(array)
        assert set(array.tolist()) == {4.0}
        worker.barrier()
        return program.now() - begun, worker.rank


@pytest.mark.parametrize(
    "machine, seed, after_s, elastic",
    [(SOUND, 1, 0.0, False), (LOSSY, 2, 0.0, False), (LOSSY, 3, 20.0, False), (LOSSY, 3, 0.0, True)],
)
def test_workers_started_again_together_end_the_running_job_that_they_left_behind(
    machine: Machine, seed: int, after_s: float, elastic: bool
) -> None:
    def work(program: Program) -> tuple[float, int]:
        rank = int(program.name[-1])
        left_behind(program, rank, 1.0 + 0.4 * rank, world=4)  # killed one after another
        program.sleep(after_s)
        return restarted(program, elastic=elastic)

    with pytest.warns(
        AbandonedJobWarning,
        match=r"job 0 at .* was left behind: this worker watched its members, ranks 0, 1, 2 and 3, .* `evict_s` of 5 s",
    ):
        done = run([work] * 4, machine=machine, seed=seed)
    assert [rank for _, rank in done] == [0, 1, 2, 3]
    assert (
        5 < max(took for took, _ in done) < 8
    )  # it watches for all of `evict_s`, however long the members have been dead


@pytest.mark.parametrize("seed", [2, 9])
def test_workers_started_again_on_bad_links_do_not_refuse_each_other(seed: int) -> None:
    """A worker reads the row of the job, and a retransmission later that of a member. Between the two, another worker
    takes the member's place."""

    def work(program: Program) -> tuple[float, int]:
        rank = int(program.name[-1])
        left_behind(program, rank, 1.0 + 0.4 * rank, world=4)
        return restarted(program)

    with pytest.warns(AbandonedJobWarning):
        done = run([work] * 4, machine=LOSSY, reverse=True, seed=seed)
    assert [rank for _, rank in done] == [0, 1, 2, 3] and max(took for took, _ in done) < 8


@pytest.mark.parametrize(
    "machine, seed, options",
    [(SOUND, 1, {"format": "fp32"}), (LOSSY, 2, {"format": "fp32"}), (LOSSY, 3, {"evict_s": 2.0})],
)
def test_workers_started_together_end_a_forming_job_of_other_settings_that_was_left_behind(
    machine: Machine, seed: int, options: dict
) -> None:
    def work(program: Program) -> tuple[float, int]:
        if program.name == "worker 3":
            with pytest.raises(SwitchUnreachableError):
                Worker(world=4, rank=1, transport=Cable(program, 0.5, EVER), switch_timeout_s=1, **options)
        else:
            program.sleep(1.5)
        return restarted(program)

    with pytest.warns(
        AbandonedJobWarning, match=r"job 0 at .* was left behind: this worker watched its members, rank 1, "
    ):
        done = run([work] * 4, machine=machine, seed=seed)
    assert [rank for _, rank in done] == [0, 1, 2, 3]


def test_a_forming_job_of_the_same_settings_gives_a_dead_workers_rank_away() -> None:
    def work(program: Program) -> tuple[float, int]:
        if program.name == "worker 3":
            with pytest.raises(SwitchUnreachableError):
                Worker(world=4, rank=2, transport=Cable(program, 0.5, EVER), switch_timeout_s=1)
            program.sleep(6)  # or the job runs, and then the others evict the dead worker
        else:
            program.sleep(1.5)
        return restarted(program)

    assert [rank for _, rank in run([work] * 4)] == [0, 1, 2, 3]


def test_a_worker_alone_ends_the_job_that_all_others_left_behind_dead() -> None:
    """An elastic newcomer waits for a boundary that never comes."""

    def work(program: Program) -> bool:
        rank = int(program.name[-1])
        left_behind(program, rank, 1.0, world=2)
        program.sleep(10 * rank)
        with Worker(world=2, rank=rank, transport=program.transport(), elastic=True) as worker:
            return worker.sync_state(np.zeros(3), 1 + rank) == 2

    with pytest.warns(AbandonedJobWarning):
        assert run([work] * 2) == [True, True]


def test_asynchronous_workers_started_again_together_end_the_job_that_they_left_behind() -> None:
    def work(program: Program) -> bool:
        rank = int(program.name[-1])
        worker = AsyncWorker(world=2, rank=rank, size=10, transport=program.transport())
        program.sleep(1)
        kill(worker)
        with AsyncWorker(world=2, rank=rank, size=10, transport=program.transport()) as again:
            again.push(np.ones(10, np.float32))
            assert again.wait()
            [update] = again.updates()
            return again.needs_sync or update.count != 2

    with pytest.warns(AbandonedJobWarning):
        assert run([work] * 2) == [False, False]


@pytest.mark.parametrize("evict_s", [5.0, 0.5])
@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("cause", ["outage", "stop"])
def test_silence_that_nobody_could_hear_ends_no_job(
    cause: str, elastic: bool, evict_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch's network is away for longer than `evict_s` just before another program asks for the job's number, or
    that program is stopped for as long after a look: it knows nothing of the members then."""

    def work(program: Program) -> bool:
        end = 2 + 1.3 * evict_s
        if program.name == "worker 2":
            program.sleep(end - 0.3 if cause == "outage" else 2)
            if cause == "stop":
                look = AbandonedJobWatch.look

                def stopped(watch: AbandonedJobWatch) -> JobView:
                    job = look(watch)
                    monkeypatch.setattr(AbandonedJobWatch, "look", look)
                    program.sleep(1.3 * evict_s)
                    return job

                monkeypatch.setattr(AbandonedJobWatch, "look", stopped)
            with pytest.raises((RefusedError, CollectiveTimeoutError)):
                Worker(
                    world=1 if not elastic else 2,
                    rank=0,
                    elastic=elastic,
                    evict_s=evict_s,
                    join_timeout_s=20,
                    transport=Cable(program, 2, end if cause == "outage" else 2),
                )
            return True
        rank = int(program.name[-1])
        with Worker(
            world=2, rank=rank, evict_s=evict_s, transport=Cable(program, 2, end if cause == "outage" else 2)
        ) as worker:
            worker.barrier()
            program.sleep(30)
            worker.barrier()
            return True

    assert run([work] * 3) == [True] * 3


@pytest.mark.parametrize("elastic", [False, True])
def test_an_outage_that_begins_with_a_join_ends_no_job(elastic: bool) -> None:
    """The Join is repeated until the outage is over, and may reach the switch before any sign of life."""
    cables: list[Cable] = []

    class Trigger(Cable):
        def send(self, burst: Buffer, segment_bytes: int) -> None:
            if len(burst) == HEADER.itemsize + CONTROL.itemsize and cables[0]._since == EVER:
                [message] = np.frombuffer(burst, HEADER.descr + CONTROL.descr)
                if message["action"] == Action.JOIN and message["challenge"]:
                    for cable in cables:
                        cable._since, cable._until = program_now(), program_now() + 6.5
            super().send(burst, segment_bytes)

    def program_now() -> float:
        return cables[0]._inner.now()

    def work(program: Program) -> bool:
        rank = int(program.name[-1])
        cable = (Trigger if rank == 2 else Cable)(program, EVER, EVER)
        if rank == 2:
            program.sleep(2)
            cables.append(cable)
            with pytest.raises(RefusedError, match="is alive"):
                Worker(world=2, rank=0, elastic=elastic, transport=cable)
            assert 8.5 < program.now() < 20
            return True
        cables.append(cable)
        with Worker(world=2, rank=rank, transport=cable) as worker:
            worker.barrier()
            program.sleep(30)
            worker.barrier()
            return True

    assert run([work] * 3) == [True] * 3


@pytest.mark.parametrize("evict_s", [5.0, 0.5])
def test_an_outage_while_a_worker_waits_to_be_admitted_ends_no_job(evict_s: float) -> None:
    def work(program: Program) -> int:
        rank = int(program.name[-1])
        options = {"world": 3, "rank": rank, "evict_s": evict_s}
        with Worker(**options, transport=Cable(program, 5, 5 + 1.3 * evict_s if rank < 2 else 5)) as worker:
            worker.barrier()
            if rank < 2:
                program.sleep(30)
                while not worker.needs_sync:
                    worker.barrier()
                    program.sleep(0.1)
                return worker.sync_state(np.zeros(1), 7)
        program.sleep(3 - program.now())
        transport = Cable(program, 5, 5 + 1.3 * evict_s)
        with Worker(**options, elastic=True, transport=transport) as worker:
            assert program.now() > 30
            return worker.sync_state(np.zeros(1), 0)

    assert run([work] * 3) == [7] * 3


@pytest.mark.parametrize("elastic", [False, True])
def test_a_live_member_keeps_its_job(elastic: bool) -> None:
    """Rank 1 is dead and started again; rank 0 computes for long, and then evicts rank 1 by waiting for it."""

    def work(program: Program) -> list[int]:
        if program.name == "worker 0":
            with Worker(world=2, rank=0, transport=program.transport()) as worker:
                worker.barrier()
                program.sleep(12)
                counts = []
                while len(counts) < 5 or not (worker.needs_sync or not elastic):
                    counts.append(int(worker.allreduce(np.ones(10, np.float32)).counts[0]))
                if elastic:
                    worker.sync_state(np.zeros(1), 1)
                return counts
        left_behind(program, 1, 1.0, world=2)
        if elastic:
            with Worker(world=2, rank=1, transport=program.transport(), elastic=True) as worker:
                assert worker.needs_sync and program.now() > 12
                worker.sync_state(np.zeros(1), 0)
            return []
        with pytest.raises(
            RefusedError,
            match=r"rank 1 is taken\. To go on, if this worker .*elastic=True.*Rank 0 .*is alive.*`iswitch e",
        ) as caught:
            Worker(world=2, rank=1, transport=program.transport())
        assert (
            program.now() < 8
            and "rank 1 (10.1.0.2:" in str(caught.value)
            and "loses its rank after 5 s (`evict_s`)" in str(caught.value)
        )
        return []

    first, _ = run([work] * 2)
    assert set(first) == {1}


def test_a_job_whose_members_may_be_silent_for_ever_is_not_ended() -> None:
    def work(program: Program) -> None:
        left_behind(program, 0, 1.0, world=1, evict_s=0, key=7)
        program.sleep(10)
        with pytest.raises(
            RefusedError,
            match=r"keeps its rank, because the job's `evict_s` is 0.*`iswitch end-job --job 0 --key 7 --switch",
        ):
            Worker(world=1, rank=0, transport=program.transport(), evict_s=0, key=7)

    run([work])


# Workers that do not agree


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    "arrays, messages",
    [
        (
            (np.ones(1000, np.float32), np.ones(2000, np.float32)),
            (
                "with 1,000 float32 elements, and another worker calls `allreduce` of 6 segments",
                "with 2,000 float32 elements, and another worker calls `allreduce` of 3 segments",
            ),
        ),
        (
            (np.ones(1000, np.float32), np.ones(1000, np.int32)),
            (
                "rank 1 sums int32 elements, and this worker, rank 0, sums 1,000 float32 elements",
                "rank 0 sums float32 elements, and this worker, rank 1, sums 1,000 int32 elements",
            ),
        ),
    ],
    ids=["sizes", "formats"],
)
def test_arrays_that_differ_are_named_in_seconds_to_the_later_worker(
    arrays: tuple[np.ndarray, np.ndarray], messages: tuple[str, str], late: int
) -> None:
    """Its contributions are refused, and the slot shows it why. The earlier worker is told as soon if the numbers of
    segments differ, and else after its `timeout_s` what is likely."""

    def work(program: Program) -> tuple[float, str]:
        rank = int(program.name[-1])
        with Worker(world=2, rank=rank, transport=program.transport(), timeout_s=8) as worker:
            worker.barrier()
            if rank == late:
                program.sleep(0.5)
            begun = program.now()
            with pytest.raises(
                MismatchError if rank == late or "another worker" in messages[0] else CollectiveTimeoutError,
                match=r"(?s)same size and dtype|different sizes or number formats",
            ) as caught:
                worker.allreduce(arrays[rank].copy())
            took = program.now() - begun
            program.sleep(20 - program.now())
            with pytest.raises(IswitchError, match="Call `rejoin`, then `sync_state`"):
                worker.barrier()
            worker.rejoin()
            assert worker.sync_state(np.zeros(1), 1) == 1
            return took, str(caught.value)

    told = run([work] * 2)
    assert told[late][0] < 5 and messages[late] in told[late][1]


def test_arrays_that_differ_by_sixteen_segments_are_told_after_the_time_out() -> None:
    """No register shows that the segment which both sum is the last one of one array only, and contributions count
    segments modulo 16."""

    def work(program: Program) -> str:
        rank = int(program.name[-1])
        with Worker(world=2, rank=rank, transport=program.transport(), timeout_s=3) as worker:
            with pytest.raises(
                CollectiveTimeoutError,
                match=r"(?s)or the workers sum arrays of different sizes.*`array\.size`.*FORMAT ",
            ) as caught:
                worker.allreduce(np.ones(352 * (1 + 16 * rank), np.float32))
            program.sleep(5)
            return str(caught.value)

    assert all(run([work] * 2))


def rises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a counter of the whole switch rise each time that a worker reads it, as another job's or a port scanner's
    frames do."""
    counts = itertools.count()
    read = Control.registers

    def registers(control: Control, first: int, count: int) -> list[int]:
        return (
            [next(counts)] if first == Register.OUTCOMES + Outcome[name] and count == 1 else read(control, first, count)
        )

    monkeypatch.setattr(Control, "registers", registers)


def test_frames_of_others_that_the_switch_counts_end_no_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    rises("LENGTH", monkeypatch)

    def work(program: Program) -> float:
        with Worker(world=2, rank=int(program.name[-1]), transport=program.transport()) as worker:
            program.sleep(20 * worker.rank)
            array = np.ones(1000, np.float32)
            worker.allreduce(array)
            return float(array[0])

    assert run([work] * 2) == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore:the job is halted")
def test_frames_of_others_that_the_switch_counts_end_no_collective_of_a_halted_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 2 contributes after the halt, so the switch refuses its contributions to a slot that holds rank 1's."""
    rises("LENGTH", monkeypatch)

    def work(program: Program) -> float:
        with Worker(world=3, rank=int(program.name[-1]), transport=program.transport()) as worker:
            program.sleep([1, 0.5, 1.5][worker.rank])
            if worker.rank == 0:
                worker.halt()
                program.sleep(12)
                worker.resume()
            array = np.ones(1000, np.float32)
            worker.allreduce(array)
            return float(array[0])

    assert run([work] * 3) == [3.0] * 3


def test_a_worker_that_is_out_of_step_sends_a_sign_of_life_now_and_then_only() -> None:
    """Another worker has reset the job, so the switch answers each sign of life with a notice."""

    def work(program: Program) -> int:
        with Worker(world=2, rank=int(program.name[-1]), transport=program.transport(), timeout_s=1.0) as worker:
            with pytest.raises((CollectiveTimeoutError, MismatchError)):
                worker.allreduce(np.ones(10 + worker.rank, np.float32))
            if worker.rank == 0:
                worker.reset()
                before = worker.counters()["EPOCH"]
                program.sleep(4)
                return worker.counters()["EPOCH"] - before
            program.sleep(6)
            return 0

    assert 2 <= run([work] * 2)[0] <= 10


def test_a_barrier_against_a_sum_is_a_mismatch() -> None:
    def work(program: Program) -> str:
        with Worker(world=2, rank=int(program.name[-1]), transport=program.transport(), timeout_s=5) as worker:
            with pytest.raises(MismatchError) as caught:
                worker.barrier() if worker.rank else worker.allreduce(np.ones(1000, np.float32))
            program.sleep(5)
            return type(caught.value).__name__

    assert run([work] * 2) == ["MismatchError"] * 2


@pytest.mark.parametrize("late", [0, 1])
def test_vectors_of_different_sizes_are_named_in_seconds_to_the_later_worker(late: int) -> None:
    """Its last segment is refused, and the slot shows it the size of the other."""

    def work(program: Program) -> str:
        rank = int(program.name[-1])
        with AsyncWorker(world=2, rank=rank, size=400 + rank, transport=program.transport()) as worker:
            if rank != late:
                worker.push(np.ones(400 + rank, np.float32))
                program.sleep(10)
                return ""
            program.sleep(0.5)
            worker.push(np.ones(400 + rank, np.float32))
            with pytest.raises(MismatchError) as caught:
                worker.wait()
            assert program.now() < 5
            with pytest.raises(MismatchError):
                list(worker.updates())
            return str(caught.value)

    other = 1 - late
    assert (
        f"{400 + other} elements by rank {other}, and {400 + late} by this worker, rank {late}. Start all workers with "
        "the same `size`" in run([work] * 2, slow=late)[late]
    )


def test_a_worker_that_was_evicted_is_told_how_to_go_on() -> None:
    def work(program: Program) -> str:
        rank = int(program.name[-1])
        with Worker(world=2, rank=rank, transport=Cable(program, 1, 8 if rank else 1)) as worker:
            worker.barrier()
            program.sleep(2)
            if rank == 0:
                worker.barrier()
                program.sleep(5)
                return ""
            program.sleep(8)
            with pytest.raises(NotAMemberError, match=r"evicted this worker after `evict_s` of silence") as caught:
                worker.barrier()
            return str(caught.value)

    assert run([work] * 2)[1]


def test_reset_by_a_worker_that_was_evicted_is_recoverable() -> None:
    def work(program: Program) -> str:
        rank = int(program.name[-1])
        with Worker(world=2, rank=rank, elastic=True, transport=Cable(program, 1, 8 if rank else 1)) as worker:
            worker.sync_state(np.zeros(1), 0)
            program.sleep(2)
            if rank == 0:
                worker.barrier()  # evicts rank 1
                while not worker.needs_sync:
                    program.sleep(0.5)
                    worker.barrier()
                worker.sync_state(np.zeros(1), 3)
                return ""
            program.sleep(8)
            with pytest.raises(
                NotAMemberError, match=r"evicted this worker.*call `rejoin`, then `sync_state`"
            ) as caught:
                worker.reset()
            with pytest.raises(IswitchError, match="cannot call a collective"):
                worker.barrier()
            worker.rejoin()
            assert worker.sync_state(np.zeros(1), 0) == 3
            return str(caught.value)

    assert run([work] * 2)[1]


def test_a_second_program_in_the_same_job_is_refused_although_it_is_elastic() -> None:
    """All ranks are alive, so nobody will make room."""

    def work(program: Program) -> str:
        rank = int(program.name[-1])
        if rank == 2:
            program.sleep(1)
            with pytest.raises(RefusedError) as refused:
                Worker(world=2, rank=1, transport=program.transport(), elastic=True)
            assert program.now() < 30
            return str(refused.value)
        with Worker(world=2, rank=rank, transport=program.transport(), elastic=True) as worker:
            worker.sync_state(np.zeros(3), 0)
            program.sleep(60)
            worker.barrier()
        return ""

    refused = run([work] * 3)[2]
    assert (
        "rank 1 is taken" in refused and "is alive" in refused and "every program a `job` number of its own" in refused
    )

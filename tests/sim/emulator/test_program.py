"""Blocking programs and real workers in virtual time: exact, the same again, and never silently stuck."""

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sim.emulator.program
from iswitch import CollectiveTimeoutError, NotAMemberError, Worker
from iswitch.config import Config
from iswitch.driver.transport import RECEIVE_BYTES
from sim.emulator.cluster import Cluster, DeadlockError
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.hub import ECHO
from sim.emulator.program import Machine, Program

FREE = Machine(burst_us=0, datagram_us=0)
PS_PER_S = 10**12


@contextmanager
def cluster(
    functions: Sequence[Callable[[Program], Any]],
    *,
    path: Path | None = None,
    machine: Machine = FREE,
    seed: int = 1,
    pcap: Path | None = None,
) -> Iterator[Cluster]:
    """Programs at the ports of one switch, which is the real one unless there is a path."""
    with (
        Board(path=path, seed=seed) if path else Board(Config(), seed=seed) as board,
        Fabric([board], pcap=pcap) as fabric,
    ):
        made = Cluster(fabric, seed=seed)
        for port, function in enumerate(functions):
            made.add((0, port), function, name=f"worker {port}", machine=machine)
        yield made


def run(functions: Sequence[Callable[[Program], Any]], limit_s: float = 100, **options: Any) -> list[Any]:
    with cluster(functions, **options) as made:
        made.run(limit_s)
        return [program.result for program in made.programs]


@pytest.fixture
def echo(hubs: Callable[[Config, str], Path]) -> Path:
    """A hub that sends everything back, in place of the switch."""
    return hubs(ECHO, "verilator")


def room() -> memoryview:
    return memoryview(bytearray(RECEIVE_BYTES))


# Time


@pytest.mark.parametrize("seconds", [0, 1e-12, 0.1, 1 / 3, 1.0000000000004, 7])
def test_sleeps_and_timeouts_last_as_long_as_was_said(echo: Path, seconds: float) -> None:
    """Rounded up to picoseconds, so that nobody is woken too soon and asks again for nothing."""

    def wait(program: Program) -> tuple[float, float, tuple[int, int]]:
        transport = program.transport()
        program.sleep(seconds)
        slept = program.now()
        found = transport.receive(room(), seconds)
        return slept, program.now(), found

    ((slept, waited, found),) = run([wait], path=echo)
    assert slept == math.ceil(seconds * PS_PER_S) / PS_PER_S
    assert waited == 2 * math.ceil(seconds * PS_PER_S) / PS_PER_S and found == (0, 0)


def test_a_time_out_against_the_clock_comes_to_an_end(echo: Path) -> None:
    """As the driver waits: for what is left until a time. The difference of two floats may be less than they
    resolve."""

    def wait(program: Program) -> list[int]:
        transport, rng, turns = program.transport(), random.Random(1), []
        for _ in range(300):
            until, count = program.now() + rng.random() / 7, 0
            while program.now() < until:
                transport.receive(room(), until - program.now())
                count += 1
            turns.append(count)
        return turns

    assert max(run([wait], path=echo)[0]) <= 2


def round_trip(program: Program) -> float:
    transport = program.transport()
    transport.send(b"?" * 100, 100)
    assert transport.receive(into := room(), math.inf) == (100, 100) and into[:100] == b"?" * 100
    return program.now()


@pytest.mark.parametrize("burst_us, datagram_us", [(0, 1), (48, 2), (20.005, 2.5)])
def test_the_processor_s_time_is_spent_once_a_burst_and_once_a_datagram_each_way(
    echo: Path, burst_us: float, datagram_us: float
) -> None:
    (free,) = run([round_trip], path=echo)
    (busy,) = run([round_trip], path=echo, machine=Machine(burst_us=burst_us, datagram_us=datagram_us))
    assert 2.1e-6 < free < 3e-6  # the cable is a microsecond long
    assert busy - free == pytest.approx(2e-6 * (burst_us + datagram_us), abs=1e-12)


def test_what_comes_while_the_processor_is_busy_is_received_as_one_burst(echo: Path) -> None:
    def burst(program: Program) -> tuple[list[tuple[int, int]], float]:
        transport, bursts = program.transport(), []
        transport.send(bytes(range(50)), 10)
        while sum(size for size, _ in bursts) < 50:
            bursts.append(transport.receive(room(), math.inf))
        return bursts, program.now()

    ((bursts, ended),) = run([burst], path=echo, machine=Machine(burst_us=10, datagram_us=1))
    assert bursts == [(10, 10), (40, 10)]
    assert (10 + 5) + (10 + 1) + (10 + 4) < 1e6 * ended < (10 + 5) + (10 + 1) + (10 + 4) + 3


@pytest.mark.parametrize("elements", [1, 64 * 352])
def test_default_machines_have_the_round_trips_of_linux(elements: int) -> None:
    """100 to 500 us, be it one segment or a window full of them."""

    def work(program: Program) -> float:
        with Worker(world=2, transport=program.transport()) as worker:
            worker.barrier()
            begun = program.now()
            worker.allreduce(np.ones(elements, np.float32))
            return program.now() - begun

    assert all(100e-6 < took < 500e-6 for took in run([work] * 2, machine=Machine()))


def test_programs_at_one_time_take_turns_in_their_order(echo: Path) -> None:
    order: list[str] = []

    def wait(program: Program) -> None:
        for _ in range(3):
            order.append(program.name)
            program.sleep(1e-6)

    with cluster([wait] * 2, path=echo) as made:
        made.run()
        assert [program.ended_s for program in made.programs] == [3e-6] * 2
    assert order == ["worker 0", "worker 1"] * 3


# Workers

BAD = Machine(rates=Rates(delay_us=1, loss=0.05, duplicate=0.02, reorder=0.05))


def summing(sizes: Sequence[int], times: dict[str, list[float]]) -> Callable[[Program], int]:
    """Sums of vectors that are known exactly, with some computing between them. How many contributions were sent
    again."""

    def work(program: Program) -> int:
        resent, noted = 0, times.setdefault(program.name, [])
        with Worker(world=4, transport=program.transport()) as worker:
            for number, size in enumerate(sizes):
                numbers = np.arange(size, dtype=np.float32) % 1000
                array = numbers + 1000 * worker.rank + number
                reduction = worker.allreduce(array)
                assert np.array_equal(array, 4 * numbers + 6000 + 4 * number) and reduction.complete
                resent += reduction.retransmissions
                noted.append(program.now())
                program.sleep(1e-4 * (1 + worker.rank))
        noted.append(program.now())
        return resent

    return work


@pytest.mark.parametrize("machine", [FREE, Machine(), BAD], ids=["free", "default", "bad"])
def test_sums_are_right_whatever_the_network_does(machine: Machine) -> None:
    sizes = [1, 351, 352, 353, 64 * 352, 64 * 352 + 1, 5, 10_000]
    resent = run([summing(sizes, {})] * 4, machine=machine)
    assert all(count > 0 if machine is BAD else count == 0 for count in resent)


def history(folder: Path, seed: int) -> tuple[list[int], dict[str, list[float]], dict[str, bytes]]:
    """What was sent again, when sums ended, and the captures."""
    times: dict[str, list[float]] = {}
    resent = run([summing([3000, 1, 20_000], times)] * 4, machine=BAD, seed=seed, pcap=folder)
    return resent, times, {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_seed_gives_the_same_times_and_bytes(tmp_path: Path) -> None:
    one, again, other = (history(tmp_path / name, seed) for name, seed in (("one", 1), ("again", 1), ("other", 2)))
    assert len(one[1]) == len(one[2]) == 4 and one == again
    assert one[1] != other[1] and all(one[2][name] != other[2][name] for name in one[2])


def test_chance_from_elsewhere_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.emulator.program, "random", SimpleNamespace(Random=lambda seed: random.SystemRandom()))
    assert history(tmp_path / "one", 1)[2] != history(tmp_path / "again", 1)[2]


def test_a_worker_that_computes_is_not_evicted_and_one_that_has_gone_is() -> None:
    """The last one computes longer than silence is borne, and then goes without a word."""
    kept: list[Worker] = []

    def work(program: Program) -> tuple[list[int], float]:
        worker = Worker(world=3, transport=program.transport(), evict_s=1.0, timeout_s=60)
        if worker.rank == 2:
            program.sleep(20)
        present = [int(worker.allreduce(np.ones(1000, np.float32)).counts.min())]
        if worker.rank == 2:
            kept.append(worker)
        else:
            present.append(int(worker.allreduce(np.ones(1000, np.float32)).counts.min()))
            worker.close()
        return present, program.now()

    with pytest.warns(match="lacks rank 2"):
        found = run([work] * 3)
    assert sorted(present for present, _ in found) == [[3], [3, 2], [3, 2]]
    assert all(21 < ended < 22 for present, ended in found if len(present) == 2)
    assert not kept[0].close()  # its sockets went with the program


def test_a_worker_s_timeouts_are_in_virtual_time() -> None:
    def alone(program: Program) -> float:
        with pytest.raises(
            CollectiveTimeoutError, match=r"waits for 2 workers, of which 1 have joined within 30 s .`join_timeout_s`."
        ):
            Worker(world=2, transport=program.transport(), join_timeout_s=30)
        return program.now()

    assert 30 < run([alone])[0] < 31


# Attendants


def test_a_keepalive_serves_while_its_program_rests_and_is_not_held(echo: Path) -> None:
    calls: list[tuple[str, float, int]] = []

    def attended(program: Program) -> None:
        transport = program.transport()

        def serve() -> float:
            size, _ = transport.receive(room(), 0)
            calls.append((phase, program.now(), size))
            return 3.0

        keepalive, phase = transport.start_keepalive(serve), "at rest"
        program.sleep(10)
        phase = "held"
        with keepalive:
            transport.send(b"?", 1)
            program.sleep(10)
        phase = "released"
        program.sleep(1)
        phase = "answered"
        transport.send(b"?", 1)
        program.sleep(1)
        phase = "stopped"
        keepalive.stop()
        program.sleep(10)

    run([attended], path=echo)
    assert [call for call in calls if call[0] == "at rest"] == [("at rest", at, 0) for at in (0, 3, 6, 9)]
    released, (phase, came_s, size) = calls[4:]
    assert released == ("released", 20, 1) and (phase, size) == ("answered", 1) and 21.000002 < came_s < 21.000003


# What goes wrong


def test_an_exception_in_a_program_ends_all_and_passes_through(echo: Path) -> None:
    unwound: list[float] = []

    def fail(program: Program) -> None:
        program.sleep(0.5)
        raise KeyError("mine")

    def wait(program: Program) -> None:
        try:
            program.transport().receive(room(), math.inf)
        finally:
            unwound.append(program.now())

    with pytest.raises(KeyError, match="mine") as caught:
        run([wait, fail], path=echo)
    assert unwound == [0.5] and caught.traceback[-1].name == "fail"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("worker ")]


def test_workers_that_are_unwound_do_not_wait_for_the_switch() -> None:
    def work(program: Program) -> None:
        with Worker(world=2, transport=program.transport()) as worker:
            worker.barrier()
            if worker.rank:
                raise NotAMemberError("made up")
            worker.barrier()

    with pytest.raises(NotAMemberError, match="made up"):
        run([work] * 2)


def test_a_deadlock_says_who_waits_for_what(echo: Path) -> None:
    sleep = lambda seconds: lambda program: program.sleep(seconds)
    listen = lambda program: program.transport().receive(room(), math.inf)
    with pytest.raises(
        DeadlockError,
        match=r"no program can continue within 100 s: worker 0 waits for the end of a sleep, worker 1 waits for a "
        r"datagram$",
    ):
        run([sleep(math.inf), listen], path=echo)
    with pytest.raises(
        DeadlockError, match=r"after 2 s no program can continue within 5 s: worker 1 waits for the end of a sleep$"
    ):
        run([sleep(2), sleep(5.001)], path=echo, limit_s=5)
    run([sleep(2), sleep(5)], path=echo, limit_s=5)


def test_a_program_that_waits_for_something_else_is_told(echo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.emulator.program, "PATIENCE_S", 0.2)
    released = threading.Event()
    with pytest.raises(TimeoutError, match=r"worker 0 has not come back for 0\.2 s"):
        run([lambda program: released.wait()], path=echo)
    released.set()


def test_a_program_is_one_thread(echo: Path) -> None:
    def other(program: Program) -> str:
        found: list[BaseException] = []

        def use() -> None:
            try:
                program.transport().send(b"?", 1)
            except RuntimeError as error:
                found.append(error)

        thread = threading.Thread(target=use, name="other thread")
        thread.start()
        thread.join()
        return str(found[0])

    assert run([other], path=echo) == [
        "a program in virtual time is one thread, and other thread is not that of worker 0"
    ]


def test_a_program_that_has_ended_has_no_sockets(echo: Path) -> None:
    (transport,) = run([lambda program: program.transport()], path=echo)
    with pytest.raises(OSError, match="worker 0 has ended, and its sockets are closed"):
        transport.send(b"?", 1)


@pytest.mark.parametrize("name", ["burst_us", "datagram_us"])
def test_machine_wrong(name: str) -> None:
    with pytest.raises(ValueError, match=f"Machine {name} must not be negative, not -1"):
        Machine(**{name: -1})

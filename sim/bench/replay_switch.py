"""`python -m sim.bench.replay_switch`: the rounds of `sim.bench.replay_models` with the replay in the switch.

The real `ReplayClient` speaks to the compiled RTL, in virtual time.

The client is a program in Python, as the clients of the other systems are. Its processor time outside the transport is
measured by its own thread, and fitted to a cost of each call of the transport and of each datagram. The sockets below
cost what those of the driver cost (`iswitch.estimate.costs`), or nothing where a card is polled.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

from iswitch.config import Config
from iswitch.driver.transport import Buffer
from iswitch.estimate.costs import Costs
from iswitch.replay import Field, ReplayClient
from iswitch.switch.replay import USUAL
from sim.bench.replay_costs import WORKLOADS, Workload
from sim.bench.replay_models import Round
from sim.bench.replay_redis import SAMPLE
from sim.bench.replay_step import learner_steps
from sim.cluster.rtl_sum import machine_of
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program

__all__ = [
    "ACTORS",
    "BUILD",
    "CLIENTS",
    "FAR_US",
    "RATE_BPS",
    "RECORD",
    "SCALES",
    "ClientCosts",
    "Metered",
    "Recorded",
    "SwitchRound",
    "data_of",
    "machine",
    "read",
    "rounds",
    "run_programs",
    "whole",
]

RECORD = Path(__file__).parents[2] / "docs" / "replay_switch.json"
BUILD = Config(replay=replace(USUAL, sessions=16, cached_answers=16, request_bytes=1 << 17))
"""A switch for eight actors and a learner, with the most requests of a session on their way."""
ACTORS = (1, 2, 4, 8)
FAR_US = 50.0
"""10 km of fibre."""
RATE_BPS = 40e9
SCALES = {"vectors": (1,), "frames": (2,), "stacks": (100, 40)}
"""Pushes and batches are so many times smaller in the simulation. One scale: their times count so many times, constant
delays with them. Two scales: a line through both gives the time of the whole size."""
ROUNDS = {"vectors": 3, "frames": 2, "stacks": 2}
"""Rounds that are simulated; the last one counts."""
LONG_S = 60.0
"""More seconds than a round takes."""


class ClientCosts(NamedTuple):
    """Microseconds of processor time of the client in Python, without the transport: for a call of the transport and
    for a datagram. `error` is the largest relative error of the fit in any operation."""

    call_us: float
    datagram_us: float
    error: float


class SwitchRound(NamedTuple):
    """A round with the replay in the switch.

    Parameters
    ----------
    workload, actors, far_us, client
        What was simulated; `client` is a key of `CLIENTS`.
    push_s, sample_s, round_s : float
        As of `sim.bench.replay_models.Round`, of the smaller messages.
    scale : int
        How many times smaller the messages were.
    """

    workload: str
    actors: int
    far_us: float
    client: str
    push_s: float
    sample_s: float
    round_s: float
    scale: int


def whole(rows: list[SwitchRound]) -> Round:
    """Return the round of whole messages by that of smaller ones, of one scale or two. The learner does not pull."""

    def of(name: str) -> float:
        times = {1 / row.scale: getattr(row, name) for row in rows}
        if len(times) == 1:
            ((share, time_s),) = times.items()
            return time_s / share
        (less, more), (less_s, more_s) = times, times.values()
        return more_s + (1 - more) * (more_s - less_s) / (more - less)

    return Round(of("push_s"), 0.0, of("sample_s"), of("round_s"))


class Recorded(NamedTuple):
    """What a file holds.

    Parameters
    ----------
    client : ClientCosts
        The client's costs.
    step_cycles : float
        Cycles of a learner's step at the switch's port, one step after another, without any host
        (`sim.bench.replay_step`).
    rounds : list of SwitchRound
        The rounds.
    """

    client: ClientCosts
    step_cycles: float
    rounds: list[SwitchRound]


CLIENTS = ("python", "sockets")
"""`python`: the client as it is. `sockets`: a client whose own work costs nothing, over sockets as the driver's."""


def machine(client: str, measured: ClientCosts, costs: Costs, *, far_us: float = 0.0) -> Machine:
    """Return the host of a client and its cable."""
    usual = machine_of(costs, rate_bps=RATE_BPS)
    extra = measured if client == "python" else ClientCosts(0.0, 0.0, 0.0)
    return replace(
        usual,
        burst_us=usual.burst_us + extra.call_us,
        datagram_us=usual.datagram_us + extra.datagram_us,
        rates=replace(usual.rates, delay_us=usual.rates.delay_us + far_us),
    )


class Metered:
    """A transport that counts its calls and datagrams, and the processor time of the program between them."""

    def __init__(self, transport: Any):
        self._transport = transport
        self.calls = self.datagrams = 0
        self.spent_s = 0.0
        self._left_s = time.thread_time()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send, and count."""
        self._count(-(-len(memoryview(burst).cast("B")) // segment_bytes))
        self._transport.send(burst, segment_bytes)
        self._left_s = time.thread_time()

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        """Receive, and count."""
        self.spent_s += time.thread_time() - self._left_s
        length, segment_bytes = self._transport.receive(into, timeout_s)
        self._left_s = time.thread_time()
        if length:
            self.calls, self.datagrams = self.calls + 1, self.datagrams - (-length // segment_bytes)
        return length, segment_bytes

    def _count(self, datagrams: int) -> None:
        self.spent_s += time.thread_time() - self._left_s
        self.calls, self.datagrams = self.calls + 1, self.datagrams + datagrams

    def take(self) -> tuple[int, int, float]:
        """Return calls, datagrams and seconds since the last call of this."""
        self.spent_s += time.thread_time() - self._left_s
        found = self.calls, self.datagrams, self.spent_s
        self.calls = self.datagrams = 0
        self.spent_s, self._left_s = 0.0, time.thread_time()
        return found


def data_of(workload: Workload, scale: int) -> tuple[dict[str, Field], dict[str, np.ndarray], np.ndarray]:
    """Return the fields of a transition, the transitions of a push, and their priorities."""
    rng, count = np.random.default_rng(1), workload.items // scale
    records = rng.integers(0, 256, (count, workload.record_bytes), np.uint8)
    return {"record": Field((workload.record_bytes,), np.uint8)}, {"record": records}, 0.1 + rng.random(count)


def run_programs(config: Config, functions: list[Callable[[Program], Any]], machines: list[Machine]) -> list[Any]:
    """Run programs, the last one at a port of its own and the others at the other ports; return their results."""
    with Board(config, mac=bytes([2, 0, 0, 0, 0, 1]), ip=bytes([10, 0, 0, 1])) as board, Fabric([board], []) as fabric:
        cluster = Cluster(fabric)
        for number, (function, host) in enumerate(zip(functions, machines, strict=True)):
            last = number == len(functions) - 1
            cluster.add((0, 0 if last else 1 + number % (config.ports - 1)), function, machine=host)
        cluster.run()
        return [program.result for program in cluster.programs]


def measure_client(config: Config = BUILD) -> ClientCosts:
    """Measure the client's own processor time, and fit it."""
    rows: list[tuple[int, int, float]] = []

    def work(name: str, program: Program) -> None:
        spec, data, priorities = data_of(WORKLOADS[name], SCALES[name][-1])
        transport: Any = Metered(program.transport())  # which passes the rest of a transport on
        batch = SAMPLE // SCALES[name][-1]
        with ReplayClient(transport, spec) as client:
            found: dict[str, list[tuple[int, int, float]]] = {"push": [], "sample": [], "update": []}
            for _ in range(4):
                transport.take()
                client.extend(data, priorities)
                client.flush()
                found["push"].append(transport.take())
                items = client.sample(batch).items
                found["sample"].append(transport.take())
                client.update_priority(items, np.ones(batch))
                client.flush()
                found["update"].append(transport.take())
        rows.extend(min(times[1:], key=lambda row: row[2]) for times in found.values())

    for name in ("vectors", "frames"):
        run_programs(config, [partial(work, name)], [machine("sockets", ClientCosts(0, 0, 0), Costs())])
    table = np.array(rows)
    spent_us = 1e6 * table[:, 2]
    # Relative errors count, so that short operations do.
    call_us, datagram_us = np.linalg.lstsq(table[:, :2] / spent_us[:, None], np.ones(len(rows)), rcond=None)[0]
    fitted = table[:, :2] @ (call_us, datagram_us)
    return ClientCosts(float(call_us), float(datagram_us), float(np.abs(fitted / spent_us - 1).max()))


def rounds(
    workload: Workload,
    actors: int,
    *,
    machines: tuple[Machine, Machine],
    scale: int = 1,
    count: int = 3,
    config: Config = BUILD,
) -> tuple[float, float, float]:
    """Return the times of a push, a sample and a round, as in `SwitchRound`.

    Parameters
    ----------
    workload, actors, scale
        What is simulated.
    machines : tuple of Machine
        Those of an actor and of the learner.
    count : int
        Rounds.
    config : Config
        The switch.

    Raises
    ------
    RuntimeError
        If a sampled record is not one that was pushed.
    """
    spec, data, priorities = data_of(workload, scale)
    pushed = {bytes(record) for record in data["record"]}
    turns = [0] * (actors + 1)
    waiting: list[Program] = []
    begins: list[float] = []

    def meet(program: Program, number: int, turn: int) -> None:
        turns[number] = turn
        if min(turns) == turn:
            for other in waiting:
                other.wake()
            waiting.clear()
        else:
            waiting.append(program)
            program.wait_until(LONG_S, lambda: min(turns) >= turn, "the others")

    def act(number: int, program: Program) -> list[float]:
        times = []
        with ReplayClient(program.transport(), spec) as client:
            client.extend(data, priorities)
            client.flush()
            for turn in range(1, count + 1):
                meet(program, number, turn)
                begun_s = program.now()
                client.extend(data, priorities)
                client.flush()
                times.append(program.now() - begun_s)
            meet(program, number, count + 1)
        return times

    def learn(program: Program) -> list[float]:
        times = []
        with ReplayClient(program.transport(), spec) as client:
            for turn in range(1, count + 1):
                meet(program, actors, turn)
                begins.append(program.now())
                batch = client.sample(SAMPLE // scale)
                times.append(program.now() - begins[-1])
                if not {bytes(record) for record in batch.data["record"]} <= pushed:
                    raise RuntimeError("a sampled record was never pushed")
                client.update_priority(batch.items, np.ones(SAMPLE // scale))
                client.flush()
            meet(program, actors, count + 1)
            begins.append(program.now())
        return times

    *pushes, samples = run_programs(
        config, [*(partial(act, number) for number in range(actors)), learn], [machines[0]] * actors + [machines[1]]
    )
    return statistics.median(times[-1] for times in pushes), samples[-1], begins[-1] - begins[-2]


def read(path: Path = RECORD) -> Recorded:
    """Return what a file holds."""
    found = json.loads(path.read_text())
    rows = [SwitchRound(**row) for row in found["rounds"]]
    return Recorded(ClientCosts(**found["client"]), found["step_cycles"], rows)


def write(path: Path, recorded: Recorded) -> None:
    """Write a file for `read`."""
    rows = [row._asdict() for row in recorded.rounds]
    found = {"client": recorded.client._asdict(), "step_cycles": recorded.step_cycles, "rounds": rows}
    path.write_text(json.dumps(found, indent=1) + "\n")


def main(out: Annotated[Path, typer.Option(help="A file to write costs and times into.")] = RECORD) -> None:
    """Measure the client's costs, and simulate the rounds."""
    console, costs, found = Console(highlight=False), Costs(), []
    with Board(Config(replay=USUAL), stamps=True) as board:
        step_cycles = learner_steps(board).steady
    client = measure_client()
    console.print(step_cycles, client)
    for name in WORKLOADS:
        for kind in CLIENTS:
            for far_us in (0.0, FAR_US):
                for actors in ACTORS:
                    machines = machine(kind, client, costs), machine(kind, client, costs, far_us=far_us)
                    for scale in SCALES[name]:
                        times = rounds(WORKLOADS[name], actors, machines=machines, scale=scale, count=ROUNDS[name])
                        found.append(SwitchRound(name, actors, far_us, kind, *times, scale))
                    console.print(found[-1])
                    write(out, Recorded(client, step_cycles, found))


if __name__ == "__main__":
    typer.run(main)

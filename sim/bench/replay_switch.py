"""`python -m sim.bench.replay_switch`: the rounds of `sim.bench.replay_models` with the replay in the switch.

The real `ReplayClient` speaks to the compiled RTL, in virtual time.

The client is a program in Python with a part in C. Its own work, outside of the transport, is measured for a push, a
batch and an update of each workload (`sim.bench.replay_client_work`). It is charged with the datagrams of that
operation; its part that does not depend on them is charged before the first one. The sockets below cost what those of
the driver cost (`iswitch.estimate.costs`), or nothing where a card is polled.
"""

import json
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console

from iswitch.config import Config
from iswitch.estimate.costs import Costs
from iswitch.replay import ReplayClient
from iswitch.switch.replay import USUAL
from sim.bench.replay_client_work import REPETITIONS, ClientWork, OwnWork, measure
from sim.bench.replay_costs import WORKLOADS, Workload
from sim.bench.replay_models import Round
from sim.bench.replay_program import BUILD, SCALES, data_of, machine, run_programs
from sim.bench.replay_redis import SAMPLE
from sim.bench.replay_step import learner_steps
from sim.emulator.engine import Board
from sim.emulator.program import Program

__all__ = [
    "ACTORS",
    "CLIENTS",
    "FAR_US",
    "IDLE",
    "RECORD",
    "Recorded",
    "SwitchRound",
    "at_scale",
    "read",
    "rounds",
    "whole",
]

RECORD = Path(__file__).parents[2] / "docs" / "replay_switch.json"
ACTORS = (1, 2, 4, 8)
FAR_US = 50.0
"""10 km of fibre."""
ROUNDS = {"vectors": 3, "frames": 2, "stacks": 2}
"""Rounds that are simulated; the last one counts."""
LONG_S = 60.0
"""More seconds than a round takes."""
IDLE = ClientWork(*[OwnWork(0.0, 0.0, 1)] * 3)
"""A client whose own work takes no time."""


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
    client : dict of str to ClientWork of OwnWork
        The client's own work by workload.
    step_cycles : float
        Cycles of a learner's step at the switch's port, one step after another, without any host
        (`sim.bench.replay_step`).
    rounds : list of SwitchRound
        The rounds.
    """

    client: dict[str, ClientWork[OwnWork]]
    step_cycles: float
    rounds: list[SwitchRound]


CLIENTS = ("python", "sockets")
"""`python`: the client as it is. `sockets`: a client whose own work costs nothing, over sockets as the driver's."""


def charge(program: Program, work: OwnWork, costs: Costs) -> None:
    """Take the constant part of an operation's own work, and let each datagram from now on take its own."""
    usual_us = machine(costs).datagram_us
    program.machine = replace(program.machine, datagram_us=usual_us + work.datagram_us)
    program.sleep(1e-6 * work.constant_us)


def at_scale(work: ClientWork[OwnWork], measured_scale: int, scale: int) -> ClientWork[OwnWork]:
    """Return the work for messages that are `scale` times smaller. Whatever does not depend on datagrams is taken to be
    in proportion to the items."""
    factor = measured_scale / scale
    return ClientWork(*(one._replace(constant_us=factor * one.constant_us) for one in work))


def rounds(
    workload: Workload,
    actors: int,
    *,
    work: ClientWork[OwnWork] = IDLE,
    far_us: float = 0.0,
    costs: Costs | None = None,
    scale: int = 1,
    count: int = 3,
    config: Config = BUILD,
) -> tuple[float, float, float]:
    """Return the times of a push, a sample and a round, as in `SwitchRound`.

    Parameters
    ----------
    workload, actors, scale
        What is simulated.
    work : ClientWork of OwnWork
        The client's own work (default: takes no time).
    far_us : float
        Delay of the fibre before the learner, in each direction.
    costs : Costs, optional
        Of hosts and cables.
    count : int
        Rounds.
    config : Config
        The switch.

    Raises
    ------
    RuntimeError
        If a sampled record is not one that was pushed.
    """
    costs = costs or Costs()
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
                charge(program, work.push, costs)
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
                charge(program, work.sample, costs)
                batch = client.sample(SAMPLE // scale)
                times.append(program.now() - begins[-1])
                if not {bytes(record) for record in batch.data["record"]} <= pushed:
                    raise RuntimeError("a sampled record was never pushed")
                charge(program, work.update, costs)
                client.update_priority(batch.items, np.ones(SAMPLE // scale))
                client.flush()
            meet(program, actors, count + 1)
            begins.append(program.now())
        return times

    *pushes, samples = run_programs(
        config,
        [*(partial(act, number) for number in range(actors)), learn],
        [machine(costs)] * actors + [machine(costs, far_us=far_us)],
    )
    return statistics.median(times[-1] for times in pushes), samples[-1], begins[-1] - begins[-2]


def read(path: Path = RECORD) -> Recorded:
    """Return what a file holds."""
    found = json.loads(path.read_text())
    client = {name: ClientWork(*(OwnWork(*one) for one in work)) for name, work in found["client"].items()}
    return Recorded(client, found["step_cycles"], [SwitchRound(**row) for row in found["rounds"]])


def write(path: Path, recorded: Recorded) -> None:
    """Write a file for `read`."""
    rows = [row._asdict() for row in recorded.rounds]
    found = {"client": recorded.client, "step_cycles": recorded.step_cycles, "rounds": rows}
    path.write_text(json.dumps(found, indent=1) + "\n")


def main(
    out: Annotated[Path, typer.Option(help="A file to write costs and times into.")] = RECORD,
    turns: Annotated[int, typer.Option(min=1, help="Measurements of the client's own work.")] = 5,
    realtime: Annotated[bool, typer.Option(help="Measure before all other programs. Only root may.")] = True,
) -> None:
    """Measure the client's own work, and simulate the rounds."""
    console, found = Console(highlight=False), []
    with Board(Config(replay=USUAL), stamps=True) as board:
        step_cycles = learner_steps(board).steady
    client = {
        name: measure(name, turns=turns, realtime=realtime, repetitions=REPETITIONS[name])[0] for name in WORKLOADS
    }
    console.print(step_cycles, client)
    for name in WORKLOADS:
        for kind in CLIENTS:
            work = client[name] if kind == "python" else IDLE
            for far_us in (0.0, FAR_US):
                for actors in ACTORS:
                    for scale in SCALES[name]:
                        charged = at_scale(work, SCALES[name][-1], scale)
                        times = rounds(
                            WORKLOADS[name], actors, work=charged, far_us=far_us, scale=scale, count=ROUNDS[name]
                        )
                        found.append(SwitchRound(name, actors, far_us, kind, *times, scale))
                    console.print(found[-1])
                    write(out, Recorded(client, step_cycles, found))


if __name__ == "__main__":
    typer.run(main)

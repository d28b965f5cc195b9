"""Mistakes in the address of the switch, and in joining a job."""

import socket
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from iswitch import Worker
from iswitch.driver.udp import UdpTransport
from sim.emulator.faults import Rates
from sim.emulator.program import Machine
from sim.mistakes.scenario import ADDRESS, Mistake, Process, format_message, run_scenario

__all__ = ["MISTAKES"]


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return format_message(error)
    raise AssertionError("there was no error")


def _closed_port() -> str:
    """Let the host of the switch report that no program listens at the port."""

    def program(process: Process) -> None:
        transport = process.transport()
        vars(transport)["refused"] = True
        Worker(ADDRESS, world=4, rank=0, transport=transport)

    return run_scenario(program, machine=Machine(rates=Rates(loss=1, delay_us=1)))


def _silent() -> str:
    return run_scenario(
        lambda process: Worker("10.0.0.7", world=4, rank=0, transport=process.transport()),
        machine=Machine(rates=Rates(loss=1, delay_us=1)),
    )


def _misspelt() -> str:
    def unknown(*_: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with patch("socket.getaddrinfo", unknown):  # as the resolver answers, on machines without a network, too
        return _error(lambda: UdpTransport("swtich:26963"))


def _joins(*options: dict[str, Any]) -> str:
    """Let workers join one after another, each with its options, and stay."""

    def program(order: int, each: dict[str, Any]) -> Callable[[Process], None]:
        def run(process: Process) -> None:
            process.sleep(order)
            with process.join(**each):
                process.sleep(30)

        return run

    return run_scenario(*(program(order, each) for order, each in enumerate(options)))


MISTAKES = [
    Mistake(
        "Started the workers, but no switch; or gave a wrong port",
        _closed_port,
        "Start the switch (`make emulator`), then the workers. The emulator listens from port 27000 on, a board at "
        "26963. "
        "`iswitch doctor --switch HOST:PORT` checks the whole path.",
    ),
    Mistake(
        "Gave the address of a machine that is off, or behind a firewall",
        _silent,
        "`iswitch doctor --switch HOST:PORT` distinguishes a silent host, a closed port and a missing route.",
    ),
    Mistake(
        'Misspelt the host: `Worker("swtich:26963", ...)`', _misspelt, "Correct the name, or pass the IPv4 address."
    ),
    Mistake(
        'Gave a URL: `Worker("udp://127.0.0.1:27000", ...)`',
        lambda: _error(lambda: UdpTransport("udp://127.0.0.1:27000")),
        "Pass only host and port.",
    ),
    Mistake(
        "Counted ranks from 1: `Worker(rank=4, world=4)`",
        lambda: _error(lambda: Worker(ADDRESS, world=4, rank=4)),
        'Ranks go from 0 to `world - 1`. With torchrun, pass `rank=int(os.environ["RANK"])`.',
    ),
    Mistake(
        "Started two workers with the same rank",
        lambda: _joins({"world": 4, "rank": 0}, {"world": 4, "rank": 0}),
        "Give each process its own rank, or `rank=None` to let the switch choose.",
    ),
    Mistake(
        "Started workers with different `world`",
        lambda: _joins({"world": 4, "rank": 0}, {"world": 3, "rank": 1}),
        "Pass the same `world` to all. If a job from an earlier run is left, end its processes.",
    ),
    Mistake(
        "Asked for more workers than the switch can hold: `world=16`",
        lambda: _joins({"world": 16, "rank": 0}),
        "Build the switch with more `members` (`.venv/bin/python -m sim.emulator --members 16`).",
    ),
    Mistake(
        "Asked for a job that the switch does not have: `job=8`",
        lambda: _joins({"world": 4, "job": 8}),
        "Job numbers begin with 0. `iswitch status` shows how many jobs the switch can hold.",
    ),
    Mistake(
        "Started two programs with the same `job` number",
        lambda: _joins({"world": 2, "key": 7}, {"world": 2}),
        "Give each program a `job` number of its own. If workers of one job are processes that neither torchrun, "
        "Slurm nor `multiprocessing` has started, pass the same `key` to all, or set ISWITCH_KEY for all.",
    ),
    Mistake(
        "Started 3 of 4 workers",
        lambda: _joins(*[{"world": 4, "rank": rank, "join_timeout_s": 5} for rank in range(3)]),
        "Start the missing worker, or raise `join_timeout_s`. `iswitch doctor` names the missing ranks.",
    ),
]

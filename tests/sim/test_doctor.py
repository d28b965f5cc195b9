"""`iswitch doctor` at the compiled switch, whose cables ail from one thing each: it is named."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from iswitch import Worker
from iswitch.tools.doctor import examine
from iswitch.tools.path_checks import Finding, Mark
from sim.bench.designs import TWO_PORTS
from sim.emulator.emulator import Emulator
from sim.emulator.engine import Board
from sim.emulator.faults import Faults, Rates

CONFIG = TWO_PORTS


@contextmanager
def emulated(faults: dict[tuple[int, str], Faults] | None = None) -> Iterator[list[str]]:
    """Addresses of the ports of a compiled switch."""
    with Board(CONFIG, trace=True) as board, Emulator(board, faults=faults) as emulator:
        thread = threading.Thread(target=emulator.serve)
        thread.start()
        try:
            yield [f"{host}:{port}" for host, port in emulator.addresses]
        finally:
            emulator.stop()
            thread.join()


def findings(address: str, **options: int) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(address, rate_gbps=1e-6, **options)}


def named(found: dict[str, Finding]) -> set[str]:
    """What is bad: that the kernel here is poor, or the machine slow, is only a warning."""
    return {finding.check for finding in found.values() if finding.mark == Mark.BAD}


def test_a_sound_switch_with_a_running_job_has_nothing_bad():
    with emulated() as ports, Worker(ports[0], world=1, key=5) as worker:
        worker.allreduce(np.ones(1000, np.float32))
        found = findings(ports[1], job=0, key=5)
        assert named(found) <= {"loss"}  # what comes after 50 ms counts as lost, on a busy machine
        assert found["segment"].mark == found["ToS"].mark == found["key"].mark == found["job 0"].mark == Mark.OK
        assert found["job 0"].figure.startswith("running, 1 of 1 workers")
        assert "key" in named(findings(ports[1], job=0, key=6))
        assert worker.allreduce(np.ones(1000, np.float32)).complete


@pytest.mark.parametrize(
    ("rates", "check"),
    [(Rates(loss=0.1), "loss"), (Rates(corrupt=0.1), "port1.RX_ERROR"), (Rates(silent_corrupt=0.5), "UDP_CHECKSUM")],
    ids=["lost", "corrupt", "silently corrupt"],
)
def test_an_ailing_cable_is_named(rates, check):
    with emulated({(1, "rx"): Faults(rates, port=1)}) as ports:
        assert {check, "loss"} <= named(findings(ports[1], timeout_s=20))
        assert check == "loss" or check not in named(findings(ports[0]))  # a fault that is over is no longer bad


def test_a_board_that_is_off_is_named():
    with emulated({(0, "tx"): Faults(Rates(loss=1.0))}) as ports:
        assert named(findings(ports[0], timeout_s=0.5)) == {"switch"}

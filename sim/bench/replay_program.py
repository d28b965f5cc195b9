"""Programs with a `ReplayClient` at the compiled switch, in virtual time: their switch, hosts and data."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from iswitch.config import Config
from iswitch.driver.transport import Buffer
from iswitch.estimate.costs import Costs
from iswitch.replay import Field
from iswitch.switch.replay import USUAL
from sim.bench.replay_costs import Workload
from sim.cluster.rtl_sum import machine_of
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine, Program

__all__ = ["BUILD", "RATE_BPS", "SCALES", "Metered", "data_of", "machine", "run_programs"]

BUILD = Config(replay=replace(USUAL, sessions=16, cached_answers=16, request_bytes=1 << 17))
"""A switch for eight actors and a learner, with the most requests of a session on their way."""
RATE_BPS = 40e9
SCALES = {"vectors": (1,), "frames": (2,), "stacks": (100, 40)}
"""Pushes and batches are so many times smaller in the simulation. One scale: their times count so many times, constant
delays with them. Two scales: a line through both gives the time of the whole size."""


def machine(costs: Costs, *, far_us: float = 0.0) -> Machine:
    """Return the host of a client whose own work takes no time, and its cable, which is `far_us` longer than usual."""
    usual = machine_of(costs, rate_bps=RATE_BPS)
    return replace(usual, rates=replace(usual.rates, delay_us=usual.rates.delay_us + far_us))


class Metered:
    """A transport that counts its datagrams, and the processor time of the program between its calls."""

    def __init__(self, transport: Any):
        self._transport = transport
        self._datagrams = 0
        self._spent_s = 0.0
        self._left_s = time.thread_time()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send, and count."""
        self._spent_s += time.thread_time() - self._left_s
        self._datagrams -= -len(memoryview(burst).cast("B")) // segment_bytes
        self._transport.send(burst, segment_bytes)
        self._left_s = time.thread_time()

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        """Receive, and count."""
        self._spent_s += time.thread_time() - self._left_s
        length, segment_bytes = self._transport.receive(into, timeout_s)
        self._left_s = time.thread_time()
        if length:
            self._datagrams -= -length // segment_bytes
        return length, segment_bytes

    def take(self) -> tuple[int, float]:
        """Return datagrams and seconds since the last call of this."""
        self._spent_s += time.thread_time() - self._left_s
        found = self._datagrams, self._spent_s
        self._datagrams, self._spent_s, self._left_s = 0, 0.0, time.thread_time()
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

"""Sums of the real driver at the compiled switch, in virtual time, with the hosts and cables of an estimate."""

from functools import partial

import numpy as np

from iswitch import Worker
from iswitch.config import Config
from iswitch.estimate.costs import Costs
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.program import Machine, Program

__all__ = ["machine_of", "rtl_sum_s"]


def machine_of(costs: Costs, *, rate_bps: float) -> Machine:
    """Return the host and cable of an estimate for programs in virtual time."""
    delay_us = costs.cable_us + costs.card_us + costs.wake_us / 2  # the same both ways, so half of the wake each
    return Machine(
        burst_us=costs.udp_burst_us,
        datagram_us=costs.udp_datagram_us,
        rate_bps=rate_bps,
        rates=Rates(delay_us=delay_us),
    )


def rtl_sum_s(size_bytes: int, workers: int, costs: Costs, *, rate_bps: float) -> float:
    """Return the seconds of a sum, from the first worker's begin to the last one's end.

    Raises
    ------
    RuntimeError
        If a sum is wrong.
    """
    machine = machine_of(costs, rate_bps=rate_bps)

    def work(rank: int, program: Program) -> tuple[float, float]:
        vector = np.full(size_bytes // 4, rank, np.float32)
        with Worker(world=workers, rank=rank, transport=program.transport(), timeout_s=60) as worker:
            worker.barrier()
            begun_s = program.now()
            worker.allreduce(vector)
            ended_s = program.now()
        if not (vector == sum(range(workers))).all():
            raise RuntimeError(f"the sum of rank {rank} is wrong")
        return begun_s, ended_s

    with Board(Config()) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric)
        for rank in range(workers):
            cluster.add((0, rank), partial(work, rank), name=f"worker {rank}", machine=machine)
        cluster.run()
        spans = [program.result for program in cluster.programs]
    return max(end for _, end in spans) - min(begin for begin, _ in spans)

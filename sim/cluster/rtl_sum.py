"""Sums of the real driver at compiled switches, in virtual time, with the hosts and cables of an estimate."""

from contextlib import ExitStack
from functools import partial

import numpy as np

from iswitch import Worker
from iswitch.config import Config
from iswitch.estimate.costs import Costs
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.link import Link, Place
from sim.emulator.program import Machine, Program
from sim.emulator.tree import Leaf, configure_leaves

__all__ = ["UPLINK_PORT", "leaves_of", "machine_of", "rtl_sum_s"]

UPLINK_PORT = Config.ports - 1
"""A leaf's port to the root."""


def machine_of(costs: Costs, *, rate_bps: float) -> Machine:
    """Return the host and cable of an estimate for programs in virtual time."""
    delay_us = costs.cable_us + costs.card_us + costs.wake_us / 2  # the same both ways, so half of the wake each
    return Machine(
        burst_us=costs.udp_burst_us,
        datagram_us=costs.udp_datagram_us,
        rate_bps=rate_bps,
        rates=Rates(delay_us=delay_us),
    )


def rtl_sum_s(size_bytes: int, workers: int, costs: Costs, *, rate_bps: float, rack: int | None = None) -> float:
    """Return the seconds of a sum, from the first worker's begin to the last one's end.

    Parameters
    ----------
    size_bytes : int
        Size of the vector.
    workers : int
        Number of workers, at most one less than ports for each leaf.
    costs, rate_bps
        As of `iswitch.estimate.switch.switch_sum`.
    rack : int, optional
        Workers at a leaf below the root; None: all are at one switch.

    Raises
    ------
    RuntimeError
        If a sum is wrong.
    """

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

    leaves = leaves_of(workers, rack) if rack else []
    cable = Rates(delay_us=costs.cable_us)
    links = [Link((leaf.switch, UPLINK_PORT), (0, leaf.switch - 1), rate_bps, cable) for leaf in leaves]
    with ExitStack() as stack:
        boards = [
            stack.enter_context(
                Board(Config(), mac=bytes([2, 0, 0, 0, 0, number + 1]), ip=bytes([10, 0, 0, number + 1]))
            )
            for number in range(len(leaves) + 1)
        ]
        configure_leaves(boards, links, leaves)
        fabric = stack.enter_context(Fabric(boards, links))
        cluster = Cluster(fabric)
        for rank in range(workers):
            place: Place = (1 + rank // rack, rank % rack) if rack else (0, rank)
            cluster.add(place, partial(work, rank), name=f"worker {rank}", machine=machine_of(costs, rate_bps=rate_bps))
        cluster.run()
        spans = [program.result for program in cluster.programs]
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def leaves_of(workers: int, rack: int) -> list[Leaf]:
    """Return the leaves below switch 0, whose switches are numbered from 1."""
    firsts = range(0, workers, rack)
    return [
        Leaf(number, 0, frozenset(range(first, min(first + rack, workers)))) for number, first in enumerate(firsts, 1)
    ]

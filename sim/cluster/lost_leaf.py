"""`python -m sim.cluster.lost_leaf`: what the loss of a leaf switch costs the workers behind the other leaf.

Real drivers and compiled switches in virtual time: two leaves below a root, two workers at each. Between two sums the
cable between the root and one leaf breaks in both directions, for good.
"""

import warnings
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch import CollectiveTimeoutError, MissingWarning, Worker
from iswitch.config import Config
from iswitch.estimate.costs import Costs
from sim.cluster.rtl_sum import UPLINK_PORT, leaves_of, machine_of
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.link import Link
from sim.emulator.program import Program
from sim.emulator.tree import configure_leaves

__all__ = ["Loss", "lose_a_leaf"]

WORKERS, RACK, ELEMENTS, RATE_BPS = 4, 2, 10_005, 10e9
STEPS_BEFORE, STEPS_AFTER = 10, 10


class Loss(NamedTuple):
    """What a worker behind the other leaf saw.

    Parameters
    ----------
    usual_s : float
        Seconds of the sum before the loss.
    gap_s : float
        Seconds of the first sum after it.
    later_s : float
        Seconds of the last sum.
    sums : list of float
        Workers in each sum.
    """

    usual_s: float
    gap_s: float
    later_s: float
    sums: list[float]


def lose_a_leaf(evict_s: float) -> Loss:
    """Break the cable of a leaf. `evict_s` is the workers' setting: the longest silence of a member."""
    costs = Costs()
    leaves = leaves_of(WORKERS, RACK)
    links = [
        Link((leaf.switch, UPLINK_PORT), (0, leaf.switch - 1), RATE_BPS, Rates(delay_us=costs.cable_us))
        for leaf in leaves
    ]

    def cut(fabric: Fabric) -> None:
        lost = leaves[-1].switch
        for switch, port in ((lost, UPLINK_PORT), (0, lost - 1)):
            wire = fabric.nodes[switch].ports[port].outbound
            assert wire is not None
            wire.faults.rates = Rates(loss=1.0)

    def work(rank: int, fabric: Fabric, program: Program) -> Loss | None:
        took_s, sums = [], []
        with Worker(
            world=WORKERS, rank=rank, transport=program.transport(), evict_s=evict_s, timeout_s=2 * evict_s + 1
        ) as worker:
            for step in range(STEPS_BEFORE + STEPS_AFTER):
                if rank == 0 and step == STEPS_BEFORE:
                    cut(fabric)
                vector = np.ones(ELEMENTS, np.float32)
                begun_s = program.now()
                try:
                    worker.allreduce(vector)
                except CollectiveTimeoutError:
                    if rank < RACK:
                        raise
                    return None  # behind the lost leaf no sum completes
                took_s.append(program.now() - begun_s)
                sums.append(float(vector[0]))
        return Loss(took_s[STEPS_BEFORE - 1], took_s[STEPS_BEFORE], took_s[-1], sums)

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", MissingWarning)  # the loss is what this measures
        boards = [
            stack.enter_context(Board(Config(), mac=bytes([2, 0, 0, 0, 0, k + 1]), ip=bytes([10, 0, 0, k + 1])))
            for k in range(len(leaves) + 1)
        ]
        configure_leaves(boards, links, leaves)
        fabric = stack.enter_context(Fabric(boards, links))
        cluster = Cluster(fabric)
        for rank in range(WORKERS):
            place = (1 + rank // RACK, rank % RACK)
            machine = machine_of(costs, rate_bps=RATE_BPS)
            cluster.add(place, partial(work, rank, fabric), name=f"worker {rank}", machine=machine)
        cluster.run()
        found: Loss = cluster.programs[0].result
    return found


def main() -> None:
    """Print a row for each `evict_s`."""
    table = Table("evict_s", "a sum before, ms", "the first one after, ms", "later ones, ms", show_edge=False)
    for evict_s in (0.1, 0.5, 5.0):
        loss = lose_a_leaf(evict_s)
        table.add_row(f"{evict_s:g}", *(f"{1e3 * seconds:,.3f}" for seconds in loss[:3]))
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    typer.run(main)

"""The scheduler's gradients through the compiled switch, in virtual time: what is learnt is the same at all workers."""

import numpy as np
import pytest

from iswitch import Worker
from iswitch.config import Config
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.learning.settings import Settings
from iswitch.plan.allreduce.learning.train import train
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.program import Machine, Program

SETTINGS = Settings(topologies=("BCube(2,1)", "DCell(2,1)"), iterations=2, num_envs=2, hidden=4)


def learnt(workers: int, rates: Rates) -> list[Policy]:
    def work(program: Program, rank: int) -> Policy:
        with Worker(world=workers, rank=rank, transport=program.transport()) as worker:
            return train(SETTINGS, rank=rank, average=lambda vector: worker.allreduce(vector, op="mean"))

    with Board(Config(), seed=3) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric, seed=3)
        for rank in range(workers):
            cluster.add((0, rank), lambda program, rank=rank: work(program, rank), machine=Machine(rates=rates))
        cluster.run()
    return [program.result for program in cluster.programs]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_workers_whose_gradients_the_switch_sums_learn_the_same(loss: float) -> None:
    found = learnt(3, Rates(delay_us=1, loss=loss))
    alone = train(SETTINGS)
    for name, weights in found[0].weights.items():
        assert all(np.array_equal(weights, other.weights[name]) for other in found), name
    assert any(not np.array_equal(weights, alone.weights[name]) for name, weights in found[0].weights.items())
    assert all(
        np.array_equal(weights, again.weights[name])
        for again in learnt(3, Rates(delay_us=1))
        for name, weights in found[0].weights.items()
    )

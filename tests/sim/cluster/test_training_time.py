"""Trainings of a few updates: their virtual time follows from the stated costs alone."""

import dataclasses

import numpy as np
import pytest

from examples.ppo import Options
from sim.cluster.trainers import TRAINERS
from sim.cluster.training_costs import Costs
from sim.cluster.training_outcome import Outcome
from sim.cluster.training_time import measure
from sim.emulator.program import Machine, Program

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(
    workers=3, num_envs=2, num_steps=16, total_steps=3 * 2 * 16 * 4, epochs=2, num_minibatches=2, solved_return=450
)
ALL = FEW.updates * FEW.epochs * FEW.num_minibatches


@pytest.mark.parametrize("name", TRAINERS)
def test_the_same_seed_takes_the_same_time(name):
    rows = [
        measure(TRAINERS[name], options, Costs(), Machine()) for options in (FEW, FEW, dataclasses.replace(FEW, seed=2))
    ]
    assert rows[0] == rows[1] and rows[0].weights_sha256 != rows[2].weights_sha256


@pytest.mark.parametrize(
    "name, solved_return, solved", [("synchronous", 1, True), ("asynchronous", 1, True), ("synchronous", 450, False)]
)
def test_a_solved_return_is_reported(name, solved_return, solved):
    row = measure(
        TRAINERS[name], dataclasses.replace(FEW, solved_return=solved_return, solved_episodes=1), Costs(), Machine()
    )
    assert row.solved == solved and (row.updates < ALL) == solved and row.updates % 4 == 0


def test_synchronous_training_takes_the_time_of_the_slowest():
    """Each sum takes less than a millisecond on top."""
    collectives = FEW.updates * (1 + FEW.epochs * FEW.num_minibatches) + 8  # some for the first `sync_state`
    rows = {
        slowdown: measure(TRAINERS["synchronous"], FEW, Costs(slowdown=slowdown), Machine()) for slowdown in (1.0, 5.0)
    }
    for slowdown, row in rows.items():
        computing_s = (
            slowdown * FEW.updates * (FEW.num_envs * FEW.num_steps * 50e-6 + FEW.epochs * FEW.num_minibatches * 2e-3)
        )
        assert (
            row.updates == ALL
            and row.steps == FEW.total_steps
            and computing_s < row.seconds < computing_s + 1e-3 * collectives
        )
    assert rows[1.0].weights_sha256 == rows[5.0].weights_sha256


def test_different_weights_are_reported():
    def differs(program: Program, rank: int, options: Options, pace: object) -> Outcome:
        return Outcome(0, program.now(), 0, 1, 1, np.zeros(1, np.float32), f"{rank}", [])

    with pytest.raises(RuntimeError, match="the workers' weights differ"):
        measure(differs, FEW, Costs(), Machine())

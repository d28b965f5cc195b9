"""Trainings of a few updates: their virtual time follows from the stated costs alone."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from examples.ppo import Options
from sim.cluster.cartpole import SERVERS, TRAINERS, Costs, Outcome, Row, measure, median_s, server_trainer, train_async
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


def test_asynchronous_training_does_not_wait_for_the_slowest():
    """It takes as many environment steps as synchronous training, most of them on the two fast workers. The slow worker
    is at most in the middle of a gradient when they end."""
    times = {name: measure(TRAINERS[name], FEW, Costs(slowdown=20), Machine()).seconds for name in TRAINERS}
    assert times["asynchronous"] < 0.6 * times["synchronous"]


def test_a_lower_threshold_ends_sooner():
    rows = {
        threshold: measure(partial(train_async, threshold=threshold, staleness=7), FEW, Costs(), Machine())
        for threshold in (1, 3)
    }
    assert rows[1].seconds < 0.6 * rows[3].seconds and rows[1].updates > rows[3].updates


def test_different_weights_are_reported():
    def differs(program: Program, rank: int, options: Options, pace: object) -> Outcome:
        return Outcome(0, program.now(), 0, 1, 1, np.zeros(1, np.float32), f"{rank}")

    with pytest.raises(RuntimeError, match="the workers' weights differ"):
        measure(differs, FEW, Costs(), Machine())


@pytest.mark.parametrize("name", SERVERS)
def test_workers_of_a_server_end_with_equal_weights_at_the_same_time_for_the_same_seed(name):
    rows = [measure(server_trainer(FEW, overlapped=SERVERS[name]), FEW, Costs(slowdown=5), Machine()) for _ in range(2)]
    assert rows[0] == rows[1] and rows[0].updates > 0 and rows[0].steps >= FEW.total_steps


def test_workers_that_do_not_wait_for_the_servers_weights_take_less_time():
    times = [
        measure(server_trainer(FEW, overlapped=overlapped), FEW, Costs(gradient_us=100, step_us=1), Machine()).seconds
        for overlapped in (False, True)
    ]
    assert times[1] < 0.9 * times[0]


@pytest.mark.parametrize(
    "solved, median", [([True, True, True], 2), ([True, True, False], 3), ([False, True, False], None)]
)
def test_an_unsolved_training_counts_as_infinitely_long(solved, median):
    """Seeds that take 1, 2 and 3 seconds, in another order."""
    rows = [Row(1, each, seconds, 450.0, 1, 1, 450.0, "") for each, seconds in zip(solved, (2.0, 3.0, 1.0))]
    assert median_s(rows) == median


@pytest.mark.parametrize("name", ["step_us", "gradient_us", "slowdown"])
def test_costs_wrong(name):
    with pytest.raises(ValueError, match=f"Costs {name} must be above 0, not 0"):
        Costs(**{name: 0})

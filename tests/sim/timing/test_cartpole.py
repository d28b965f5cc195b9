"""Trainings of a few updates: what they take follows from what is stated, and nothing else does."""

import dataclasses

import pytest
from iswitch.rl.ppo import Options
from sim.emulator.program import Machine, Program
from sim.timing.cartpole import TRAINERS, Costs, Outcome, Row, measure, median_s

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(workers=3, environments=2, steps=16, total_steps=3 * 2 * 16 * 4, epochs=2, minibatches=2, good_return=450)


@pytest.mark.parametrize("name", TRAINERS)
def test_the_same_seed_takes_the_same_time(name):
    rows = [measure(TRAINERS[name], options, Costs(), Machine()) for options in (FEW, FEW, dataclasses.replace(FEW, seed=2))]
    assert rows[0] == rows[1] and rows[0].weights_sha256 != rows[2].weights_sha256


@pytest.mark.parametrize("good_return, reached", [(1, True), (450, False)])
def test_a_good_return_is_told(good_return, reached):
    row = measure(TRAINERS["synchronous"], dataclasses.replace(FEW, good_return=good_return, good_episodes=1), Costs(), Machine())
    assert row.reached == reached and (row.updates < FEW.updates) == reached


def test_synchronous_training_takes_the_time_of_the_slowest():
    """But for the sums, each of which takes less than a millisecond."""
    collectives = FEW.updates * (1 + FEW.epochs * FEW.minibatches) + 8  # some for the first `share`
    rows = {slowdown: measure(TRAINERS["synchronous"], FEW, Costs(slowdown=slowdown), Machine()) for slowdown in (1.0, 5.0)}
    for slowdown, row in rows.items():
        computing_s = slowdown * FEW.updates * (FEW.environments * FEW.steps * 50e-6 + FEW.epochs * FEW.minibatches * 2e-3)
        assert row.updates == FEW.updates and computing_s < row.seconds < computing_s + 1e-3 * collectives
    assert rows[1.0].weights_sha256 == rows[5.0].weights_sha256


def test_different_weights_are_told():
    def differs(program: Program, rank: int, options: Options, pace: object) -> Outcome:
        return Outcome(0, program.now(), 0, 1, f"{rank}")

    with pytest.raises(RuntimeError, match="the workers' weights differ"):
        measure(differs, FEW, Costs(), Machine())


@pytest.mark.parametrize("reached, median", [([True, True, True], 2), ([True, True, False], 3), ([False, True, False], None)])
def test_who_does_not_get_there_took_for_ever(reached, median):
    """Seeds that take 1, 2 and 3 seconds, in another order."""
    rows = [Row(1, got_there, seconds, 450.0, 1, "") for got_there, seconds in zip(reached, (2.0, 3.0, 1.0))]
    assert median_s(rows) == median


@pytest.mark.parametrize("name", ["step_us", "gradient_us", "slowdown"])
def test_costs_wrong(name):
    with pytest.raises(ValueError, match=f"Costs {name} must be above 0, not 0"):
        Costs(**{name: 0})

"""Trainings of a few updates: their virtual time follows from the stated costs alone."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest

from examples.ppo import Options
from iswitch.estimate.costs import Costs as HostCosts
from sim.cluster.rtl_sum import machine_of
from sim.cluster.training_time import (
    SERVERS,
    TRAINERS,
    Costs,
    Outcome,
    Row,
    Task,
    compare,
    make_asynchronous,
    make_at_server,
    make_synchronous,
    measure,
    median_s,
    train_async,
)
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
        return Outcome(0, program.now(), 0, 1, 1, np.zeros(1, np.float32), f"{rank}", [])

    with pytest.raises(RuntimeError, match="the workers' weights differ"):
        measure(differs, FEW, Costs(), Machine())


@pytest.mark.parametrize("name", SERVERS)
def test_workers_of_a_server_end_with_equal_weights_at_the_same_time_for_the_same_seed(name):
    rows = [measure(SERVERS[name](FEW), FEW, Costs(slowdown=5), Machine()) for _ in range(2)]
    assert rows[0] == rows[1] and rows[0].updates > 0 and rows[0].steps >= FEW.total_steps


def test_workers_that_do_not_wait_for_the_servers_weights_take_less_time():
    times = [
        measure(make_at_server(FEW, overlapped=overlapped), FEW, Costs(gradient_us=100, step_us=1), Machine()).seconds
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


@pytest.mark.parametrize("make_trainer", [make_synchronous, make_asynchronous, SERVERS["server"]])
def test_a_curve_rises_in_time_and_steps_and_ends_at_the_outcome(make_trainer):
    row = measure(make_trainer(FEW), FEW, Costs(), Machine())
    seconds, steps, mean_returns = zip(*row.curve, strict=True)
    assert sorted(seconds) == list(seconds) and sorted(steps) == list(steps) and seconds[0] > 0
    assert (steps[-1], mean_returns[-1]) == (row.steps, row.mean_return)
    # The last worker may end later: by at most the gradient of the slowest, which it does not give up
    assert row.seconds - (32 * 50e-6 + 2e-3) * 5 <= seconds[-1] <= row.seconds


@pytest.mark.parametrize("processes", [1, 2])
def test_a_comparison_prints_and_writes_each_training_under_its_name(processes, tmp_path, capsys):
    """The times are those that `measure` gives alone, however many processes there are."""
    task = Task(options=dataclasses.replace(FEW, workers=1, solved_return=1, solved_episodes=1), results=tmp_path / "a")
    make_trainers = {"one": make_synchronous, "other": partial(make_asynchronous, threshold=1)}
    found = compare(task, make_trainers, Costs(), seeds=2, workers=2, notes={"remark": 7}, processes=processes)
    options = [dataclasses.replace(task.options, workers=2, seed=seed) for seed in (1, 2)]
    machine = machine_of(HostCosts(), rate_bps=10e9)
    assert found == {
        name: [measure(make(each), each, Costs(), machine) for each in options] for name, make in make_trainers.items()
    }
    written = json.loads(task.results.read_text())
    assert written["remark"] == 7 and written["options"]["workers"] == 2
    printed = " ".join(capsys.readouterr().out.split())  # a title is as narrow as its table
    table = printed.partition("virtual seconds to a mean return of 1, 2 workers, one 5 times as slow")[2]
    for name, rows in found.items():
        assert [each["weights_sha256"] for each in written["trainers"][name]["trainings"]] == [
            row.weights_sha256 for row in rows
        ]
        for row in rows:
            assert f"{row.seconds:.3f}" in table
    assert "seed" in table and "median of updates" in table

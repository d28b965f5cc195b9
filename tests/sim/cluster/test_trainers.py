"""The trainers in trainings of a few updates: for which other workers each of them waits."""

from functools import partial

import pytest

from sim.cluster.trainers import SERVERS, TRAINERS, make_asynchronous, make_at_server, make_synchronous, train_async
from sim.cluster.training_costs import Costs
from sim.cluster.training_time import measure
from sim.emulator.program import Machine
from tests.sim.cluster.test_training_time import FEW

pytestmark = pytest.mark.usefixtures("one_thread")


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


@pytest.mark.parametrize("make_trainer", [make_synchronous, make_asynchronous, SERVERS["server"]])
def test_a_curve_rises_in_time_and_steps_and_ends_at_the_outcome(make_trainer):
    row = measure(make_trainer(FEW), FEW, Costs(), Machine())
    seconds, steps, mean_returns = zip(*row.curve, strict=True)
    assert sorted(seconds) == list(seconds) and sorted(steps) == list(steps) and seconds[0] > 0
    assert (steps[-1], mean_returns[-1]) == (row.steps, row.mean_return)
    # The last worker may end later: by at most the gradient of the slowest, which it does not give up
    assert row.seconds - (32 * 50e-6 + 2e-3) * 5 <= seconds[-1] <= row.seconds

"""Asynchronous PPO: against a stand-in for the switch in simulated time, and against the golden switch."""

import dataclasses
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from examples.async_ppo import Tally, app, train, vector_size
from examples.ppo import Options, evaluate
from iswitch import AsyncWorker
from sim.bench.udp_model import UdpModel

spec = importlib.util.spec_from_file_location("fake", Path(__file__).with_name("fake_async_worker.py"))
fake_async_worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_async_worker)

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(workers=3, num_envs=2, num_steps=32, total_steps=3 * 2 * 32 * 3, epochs=2, num_minibatches=2, hidden=16)


def run(options, *, threshold=2, staleness=3, slow=1.0, step_s=50e-6, gradient_s=2e-3):
    """Return the results of all workers, the seconds simulated, and the ages of the summed vectors.

    The last worker is slower by the factor `slow`.
    """
    switch = fake_async_worker.Switch(options.workers, threshold=threshold, staleness=staleness)

    def work(worker, rank):
        factor = slow if rank == options.workers - 1 else 1.0
        return train(
            worker,
            rank,
            options,
            simulate_compute=lambda steps: worker.sleep(factor * (steps * step_s + gradient_s)),
            clock=lambda: worker.now,
        )

    results = switch.run(work)
    return results, max(worker.now for worker in switch.workers), switch.ages


@pytest.mark.parametrize(("threshold", "staleness", "slow"), [(1, 7, 1.0), (2, 3, 5.0), (3, 3, 1.0), (2, 0, 3.0)])
def test_weights_are_equal_on_all_workers_and_on_repeat(threshold, staleness, slow):
    first, again = (run(FEW, threshold=threshold, staleness=staleness, slow=slow) for _ in range(2))
    results = first[0] + again[0]
    assert len({result.weights_sha256 for result in results}) == 1
    assert len({result.updates for result in results}) == 1 and results[0].updates > 4
    assert first[1:] == again[1:] and max(first[2]) <= staleness
    curves = [[dataclasses.replace(point, seconds=0) for point in result.curve] for result in results]
    assert all(curve == curves[0] for curve in curves)


def test_a_slow_worker_does_not_slow_the_others_down():
    options = dataclasses.replace(FEW, total_steps=3 * 2 * 32 * 8)
    times = {
        (threshold, slow): run(options, threshold=threshold, slow=slow, staleness=7)[1]
        for threshold in (2, 3)
        for slow in (1.0, 10.0)
    }
    assert times[3, 10.0] > 3 * times[3, 1.0]
    assert times[2, 10.0] < 2.5 * times[2, 1.0]


def test_the_tally_ends_by_steps_or_by_solved_returns():
    tally = Tally(dataclasses.replace(FEW, total_steps=1000, solved_return=10.0, solved_episodes=3))
    tally.add(5.0, 1, 250.0)
    tally.add(0.0, 0, 250.0)
    assert tally.remaining == 0.5 and tally.episodes.mean_return == 5.0 and not tally.episodes.solved
    tally.add(60.0, 2, 0.0)
    assert tally.episodes.solved
    tally.add(0.0, 3, 0.0)  # the latest three episodes return 0
    assert tally.remaining == 0.5 and tally.episodes.mean_return == 0.0 and not tally.episodes.solved
    tally.add(0.0, 0, 500.0)
    assert tally.remaining == 0.0


def test_returns_are_checked_after_as_many_steps_as_in_synchronous_training():
    """One episode that returns 1 is soon there, but the training continues for the four gradients of a rollout."""
    results, _, _ = run(dataclasses.replace(FEW, solved_return=1.0, solved_episodes=1))
    assert {result.updates for result in results} == {FEW.epochs * FEW.num_minibatches}
    assert [point.update for point in results[0].curve] == [4] and results[0].curve[0].mean_return > 1


def test_training_over_the_golden_switch_ends_with_equal_weights():
    options = dataclasses.replace(FEW, hidden=4)
    with UdpModel() as model:

        def work(rank):
            with AsyncWorker(
                model.address(rank), rank=rank, world=options.workers, size=vector_size(options), threshold=2
            ) as worker:
                return train(worker, rank, options), worker.digest

        with ThreadPoolExecutor(options.workers) as pool:
            answers = list(pool.map(work, range(options.workers)))
    assert len({(result.weights_sha256, digest) for result, digest in answers}) == 1
    assert all(np.isfinite(result.weights).all() for result, _ in answers)


def test_the_command_trains_a_process_for_each_worker():
    few = ["--workers", "2", "--num-envs", "1", "--num-steps", "16", "--total-steps", "128", "--hidden", "8"]
    with UdpModel() as model:
        switch = ",".join(model.address(port) for port in range(2))
        run = CliRunner().invoke(app, ["--switch", switch, "--evaluation-episodes", "2", *few])
    assert run.exit_code == 1  # so short a training does not solve CartPole
    assert "of 2 unseen episodes" in run.output and "weights sha256" in " ".join(run.output.split())


@pytest.mark.slow
def test_cart_pole_is_learned_with_a_slow_worker():
    options = Options(seed=1)
    results, _, _ = run(options, threshold=2, staleness=3, slow=5.0)
    assert np.mean(evaluate(results[0].weights, options)) >= 400

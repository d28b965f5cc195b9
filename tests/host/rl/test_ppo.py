"""PPO without a switch: what it asks of one is what makes N workers one learner."""

import dataclasses
import importlib.util
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from iswitch.rl.launch import addresses_of
from iswitch.rl.player import Learner, Player, evaluate
from iswitch.rl.ppo import advantages, loss, train
from iswitch.rl.replica import Replica
from iswitch.rl.training import Options

spec = importlib.util.spec_from_file_location("double", Path(__file__).with_name("double.py"))
double = importlib.util.module_from_spec(spec)
spec.loader.exec_module(double)

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(workers=3, environments=2, steps=32, total_steps=3 * 2 * 32 * 3, epochs=2, minibatches=2)


def run(options):
    return double.Switch(options.workers).run(lambda worker, rank: train(worker, rank, options))


def test_weights_are_equal_on_all_workers_and_on_repeat():
    first, again = run(FEW), run(FEW)
    assert len({result.weights_sha256 for result in first + again}) == 1
    curves = [[dataclasses.replace(point, seconds=0) for point in result.curve] for result in first + again]
    assert all(curve == curves[0] for curve in curves)


def test_seed_changes_weights():
    assert run(FEW)[0].weights_sha256 != run(dataclasses.replace(FEW, seed=2))[0].weights_sha256


def test_collectives_are_counted():
    result = run(FEW)[0]
    gradients = FEW.updates * FEW.epochs * FEW.minibatches
    assert result.allreduces == result.segments == gradients + FEW.updates


def test_mean_of_gradients_is_gradient_of_whole_batch():
    learner = Learner(4, 2, FEW.hidden, torch.Generator().manual_seed(1))
    gradient = Replica(learner, learning_rate=1.0, gradient_norm=1.0).gradient
    batches = []
    for rank in range(FEW.workers):
        rollout = Player(FEW, rank).play(learner)
        gains = advantages(rollout, FEW.discount, FEW.trace)
        batches.append({"observations": rollout.observations.flatten(0, 1), "actions": rollout.actions.flatten(),
                        "log_probabilities": rollout.log_probabilities.flatten() - 0.1 * rank,
                        "advantages": gains.flatten(), "targets": (gains + rollout.values).flatten()})

    def gradient_of(batch):
        gradient.zero_()
        loss(learner, batch, FEW).backward()
        return gradient.numpy().copy()

    parts = [gradient_of(batch) for batch in batches]
    double.Switch(FEW.workers).run(lambda worker, rank: worker.allreduce(parts[rank], op="mean"))
    whole = gradient_of({name: torch.cat([batch[name] for batch in batches]) for name in batches[0]})
    assert np.abs(whole).max() > 1e-3
    np.testing.assert_allclose(parts[0], whole, rtol=1e-3, atol=1e-6)


def test_advantage_is_sum_of_discounted_surprises():
    rollout = Player(FEW, 0).play(Learner(4, 2, FEW.hidden, torch.Generator().manual_seed(1)))
    found = advantages(rollout, 0.9, 0.8)
    rewards, ends = rollout.rewards.double().numpy(), rollout.ends.double().numpy()
    values = np.concatenate([rollout.values.numpy(), rollout.last_values.numpy()[None]]).astype(float)
    assert ends.sum() > 0
    for k in range(FEW.environments):
        for step in range(FEW.steps):
            expected, weight = 0.0, 1.0
            for later in range(step, FEW.steps):
                ahead = 0.0 if ends[later, k] else values[later + 1, k]
                expected += weight * (rewards[later, k] + 0.9 * ahead - values[later, k])
                weight *= 0.9 * 0.8
                if ends[later, k]:
                    break
            assert found[step, k].item() == pytest.approx(expected, abs=1e-4)


def test_workers_play_different_games():
    first, second = (Player(FEW, rank) for rank in range(2))
    assert not np.isin(first.observations, second.observations).any()


def test_evaluation_repeats():
    weights = run(FEW)[0].weights
    options = dataclasses.replace(FEW, evaluation_episodes=3)
    assert evaluate(weights, options) == evaluate(weights, options)


@pytest.mark.parametrize("environment", ["Pendulum-v1", "Blackjack-v1", "FrozenLake-v1"])
def test_environment_wrong(environment):
    options = dataclasses.replace(FEW, environment=environment)
    with gymnasium.make(environment) as game, pytest.raises(ValueError, match=f"must show a vector and take one of several actions.*{environment}"):
        Learner.of(game, options)


def test_addresses_of_ports():
    assert addresses_of("a:1-3") == ["a:1", "a:2", "a:3"]
    assert addresses_of("a:1,b:7") == ["a:1", "b:7"]
    assert addresses_of("10.0.0.9") == ["10.0.0.9"]


@pytest.mark.slow
def test_cart_pole_is_learnt():
    options = Options(seed=1)
    result = run(options)[0]
    rewards = evaluate(result.weights, options)
    assert np.mean(rewards) >= 450 and result.allreduces < 2000

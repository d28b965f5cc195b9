"""Actors and a learner with a stand-in for the switch. Each has a thread, and one thread runs at a time."""

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from examples.apex import EVALUATION_SEED, STOP, Options, Sampler, act, evaluate, learn, schedule_of
from examples.common.ticket_order import Start
from sim.bench.turns import in_turns

spec = importlib.util.spec_from_file_location("fake_replay", Path(__file__).with_name("fake_replay.py"))
fake_replay = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_replay)

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(
    actors=2,
    num_envs=2,
    add_size=8,
    batch_size=16,
    samples_per_insert=4.0,
    learning_starts=60,
    publish_interval=4,
    evaluation_interval=16,
    steps=48,
    hidden=8,
    evaluation_episodes=2,
)
DETERMINISTIC = replace(FEW, deterministic=True)
AT_FIRST = Start()


def train(options, start=AT_FIRST, capacity=512, **published):
    """Return the table, the learner's result, and the actors' last reports."""
    table = fake_replay.Table(capacity)
    table.ticket, table.version = start.ticket, start.version
    bodies = [
        partial(act, fake_replay.FakeReplay(table, f"actor {rank}", rank), options, rank, start)
        for rank in range(options.actors)
    ]
    learner = partial(learn, fake_replay.FakeReplay(table, "learner", 99), options, start, **published)
    *actors, learned = in_turns(table.lock, [*bodies, learner])
    return table, learned, actors


def test_the_table_has_what_the_actors_added_and_has_sampled_what_the_learner_took():
    for options in (FEW, DETERMINISTIC):
        table, learned, actors = train(options)
        assert table.adds == sum(actor.items for actor in actors) and [actor.rank for actor in actors] == [0, 1]
        assert (
            learned.sampled == options.steps * options.batch_size
            and 0 <= table.draws - learned.sampled <= 2 * options.batch_size
        )
        assert [point.step for point in learned.curve] == list(range(4, 49, 4))
        assert [len(point.returns) for point in learned.curve] == [0, 0, 0, 2] * 3
        assert table.parameters == STOP and table.version == 1 + 48 // 4


def test_deterministic_order_gives_the_same_samples_and_weights_again():
    first, again = train(DETERMINISTIC), train(DETERMINISTIC)
    assert first[1].weights_sha256 == again[1].weights_sha256 and first[1].samples_sha256 == again[1].samples_sha256
    assert [replace(point, seconds=0) for point in first[1].curve] == [
        replace(point, seconds=0) for point in again[1].curve
    ]
    other = train(replace(DETERMINISTIC, seed=2))
    assert other[1].weights_sha256 != first[1].weights_sha256 and other[1].samples_sha256 != first[1].samples_sha256


def test_deterministic_order_does_not_depend_on_where_the_table_was():
    first, later = train(DETERMINISTIC), train(DETERMINISTIC, Start(ticket=1000, version=7))
    assert first[1].weights_sha256 == later[1].weights_sha256 and later[0].version == first[0].version + 7


def test_in_deterministic_order_requests_are_in_the_order_of_the_schedule():
    table, _, _ = train(DETERMINISTIC)
    schedule = schedule_of(DETERMINISTIC, Start(), 1)
    expected = (
        {schedule.sample(step): ("sample", "learner") for step in range(48)}
        | {schedule.update(step): ("update", "learner") for step in range(48)}
        | {
            schedule.add(number, rank): ("add", f"actor {rank}")
            for number in range(schedule.warmup_rounds + 48 // schedule.steps)
            for rank in range(2)
        }
    )
    assert [(kind, name, ticket) for kind, name, ticket in table.order] == [
        (*expected[ticket], ticket) for ticket in sorted(expected)
    ]


def test_without_deterministic_order_samples_stay_at_the_ratio():
    ratios = []
    table, learned, _ = train(
        FEW, report=lambda point: ratios.append(point.samples / (point.adds - FEW.learning_starts))
    )
    assert ratios[-1] == pytest.approx(FEW.samples_per_insert, rel=0.5)
    assert table.ratio == 0  # the training is over


def test_a_good_evaluation_ends_the_training_if_more_episodes_confirm_it():
    options = replace(FEW, stop_return=1.0)
    _, learned, _ = train(options)
    assert (
        learned.best_step == learned.curve[-1].step == 16
        and len(learned.curve[-1].returns) == 4 * options.evaluation_episodes
    )


def test_the_best_weights_are_kept():
    _, learned, _ = train(FEW)
    means = {point.step: point.mean_return for point in learned.curve if point.returns}
    assert means[learned.best_step] == max(means.values())


def test_an_actor_without_parameters_raises_a_timeout():
    class Silent(fake_replay.FakeReplay):
        def get_parameters(self, newer_than=0, timeout_s=0.0):
            return None

    with pytest.raises(TimeoutError, match="actor 1 waited 60 s for version 1 of the parameters, and has 0"):
        act(Silent(fake_replay.Table()), FEW, 1, Start())


def test_actors_have_different_episodes_and_repeat_them():
    first, second, again = (Sampler(FEW, rank).transitions(20)[0] for rank in (0, 1, 0))
    assert all((first[name] == again[name]).all() for name in first) and (first["obs"] != second["obs"]).any()


def test_a_transition_is_a_step_of_one_environment():
    """In a step of 0.02 s cart and pole move as far as the speeds before the step tell."""
    columns, _ = Sampler(replace(FEW, n_step=1), 0).transitions(200)
    before, after = columns["obs"], columns["next_obs"]
    assert np.allclose(after[:, [0, 2]], before[:, [0, 2]] + 0.02 * before[:, [1, 3]], atol=1e-5)
    assert (
        (columns["reward"] == 1).all()
        and set(columns["action"]) == {0, 1}
        and set(columns["discount"]) == set(np.array([0, 0.99], np.float32))
    )


def test_rewards_are_of_at_most_n_steps():
    columns, priorities = Sampler(replace(FEW, n_step=3), 0).transitions(200)
    assert set(columns["reward"]) <= set(np.array([1, 1.99, 1 + 0.99 * 1.99], np.float32))
    assert priorities.shape == (200,) and (priorities > 0).all()


def test_evaluation_repeats():
    weights = np.random.default_rng(1).normal(size=Sampler(FEW, 0).network.size).astype(np.float32)
    assert evaluate(weights, FEW, EVALUATION_SEED) == evaluate(weights, FEW, EVALUATION_SEED)


def test_environment_wrong():
    with pytest.raises(ValueError, match="must have a vector as observation and discrete actions"):
        Sampler(replace(FEW, environment="Pendulum-v1"), 0)


@pytest.mark.parametrize(
    "change",
    [
        {"actors": 0},
        {"num_envs": 0},
        {"batch_size": 0},
        {"gamma": 1.5},
        {"samples_per_insert": 0.0},
        {"steps": 49},
        {"learning_starts": 0},
        {"evaluation_interval": 6},
        {"n_step": 0},
    ],
)
def test_options_wrong(change):
    with pytest.raises(ValueError, match=f"Options {next(iter(change))} must be"):
        replace(FEW, **change)


def test_later_environments_explore_less():
    options = Options(actors=2, num_envs=3)
    rates = [options.epsilon_of(env) for env in range(6)]
    assert (
        rates[0] == options.epsilon
        and rates[-1] == pytest.approx(options.epsilon**8)
        and rates == sorted(rates, reverse=True)
    )
    assert Options(actors=1, num_envs=1).epsilon_of(0) == Options().epsilon


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole_is_solved(seed, deterministic):
    options = Options(seed=seed, deterministic=deterministic)
    _, learned, _ = train(options, capacity=1 << 15)
    assert np.mean(evaluate(learned.weights, options, EVALUATION_SEED)) >= 450

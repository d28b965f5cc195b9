"""Actors and a learner around a stand-in for the switch, each in a thread of its own, of which one runs at a time."""

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from examples.apex.actor import act
from examples.apex.learner import learn
from examples.apex.options import STOP, Options, Start
from examples.apex.play import HELD_OUT, Games, evaluate
from examples.apex.schedule import Schedule
from sim.bench.turns import in_turns

spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).with_name("stand_in.py"))
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = Options(
    actors=2,
    games=2,
    add_items=8,
    batch=16,
    ratio=4.0,
    warmup=60,
    publish_every=4,
    evaluate_every=16,
    steps=48,
    hidden=8,
    evaluation_episodes=2,
)
LOCKSTEP = replace(FEW, lockstep=True)
AT_FIRST = Start()


def train(options, start=AT_FIRST, capacity=512, **published):
    """The table, what the learner ended with, what the actors did."""
    table = stand_in.Table(capacity)
    table.ticket, table.version = start.ticket, start.version
    bodies = [
        partial(act, stand_in.StandIn(table, f"actor {rank}", rank), options, rank, start)
        for rank in range(options.actors)
    ]
    learner = partial(learn, stand_in.StandIn(table, "learner", 99), options, start, **published)
    *actors, learned = in_turns(table.lock, [*bodies, learner])
    return table, learned, actors


def test_all_that_actors_added_is_in_the_table_and_all_was_drawn_that_the_learner_took():
    for options in (FEW, LOCKSTEP):
        table, learned, actors = train(options)
        assert table.adds == sum(actor.items for actor in actors) and [actor.rank for actor in actors] == [0, 1]
        assert learned.drawn == options.steps * options.batch and 0 <= table.draws - learned.drawn <= 2 * options.batch
        assert [point.step for point in learned.curve] == list(range(4, 49, 4))
        assert [len(point.returns) for point in learned.curve] == [0, 0, 0, 2] * 3
        assert table.parameters == STOP and table.version == 1 + 48 // 4


def test_lockstep_gives_the_same_draws_and_weights_again():
    first, again = train(LOCKSTEP), train(LOCKSTEP)
    assert first[1].weights_sha256 == again[1].weights_sha256 and first[1].drawn_sha256 == again[1].drawn_sha256
    assert [replace(point, seconds=0) for point in first[1].curve] == [
        replace(point, seconds=0) for point in again[1].curve
    ]
    other = train(replace(LOCKSTEP, seed=2))
    assert other[1].weights_sha256 != first[1].weights_sha256 and other[1].drawn_sha256 != first[1].drawn_sha256


def test_lockstep_does_not_depend_on_where_the_table_was():
    first, later = train(LOCKSTEP), train(LOCKSTEP, Start(ticket=1000, version=7))
    assert first[1].weights_sha256 == later[1].weights_sha256 and later[0].version == first[0].version + 7


def test_in_lockstep_operations_are_in_the_order_of_the_schedule():
    table, _, _ = train(LOCKSTEP)
    schedule = Schedule(LOCKSTEP, Start())
    expected = (
        {schedule.sample(step): ("sample", "learner") for step in range(48)}
        | {schedule.update(step): ("update", "learner") for step in range(48)}
        | {
            schedule.add(number, rank): ("add", f"actor {rank}")
            for number in range(schedule.warm_rounds + 48 // schedule.steps)
            for rank in range(2)
        }
    )
    assert [(kind, name, ticket) for kind, name, ticket in table.order] == [
        (*expected[ticket], ticket) for ticket in sorted(expected)
    ]


def test_draws_stay_at_the_ratio_when_all_run_freely():
    credits = []
    table, learned, _ = train(FEW, report=lambda point: credits.append(point.draws / (point.adds - FEW.warmup)))
    assert credits[-1] == pytest.approx(FEW.ratio, rel=0.5) and table.ratio == 0  # it is over


def test_a_good_evaluation_ends_the_training_when_more_episodes_confirm_it():
    options = replace(FEW, good_return=1.0)
    _, learned, _ = train(options)
    assert (
        learned.best_step == learned.curve[-1].step == 16
        and len(learned.curve[-1].returns) == 4 * options.evaluation_episodes
    )


def test_the_best_weights_are_kept():
    _, learned, _ = train(FEW)
    means = {point.step: point.mean_return for point in learned.curve if point.returns}
    assert means[learned.best_step] == max(means.values())


def test_an_actor_without_parameters_gives_up():
    class Silent(stand_in.StandIn):
        def get_parameters(self, newer_than=0, timeout_s=0.0):
            return None

    with pytest.raises(TimeoutError, match="actor 1 waited 60 s for version 1 of the parameters, and has 0"):
        act(Silent(stand_in.Table()), FEW, 1, Start())


def test_actors_play_different_games_and_the_same_again():
    first, second, again = (Games(FEW, rank).play(20)[0] for rank in (0, 1, 0))
    assert (
        all((first[name] == again[name]).all() for name in first)
        and (first["observation"] != second["observation"]).any()
    )


def test_transitions_are_steps_of_one_game():
    """In a step of 0.02 s cart and pole go as far as the speeds that were seen before it say."""
    columns, _ = Games(replace(FEW, horizon=1), 0).play(200)
    before, after = columns["observation"], columns["next_observation"]
    assert np.allclose(after[:, [0, 2]], before[:, [0, 2]] + 0.02 * before[:, [1, 3]], atol=1e-5)
    assert (
        (columns["reward"] == 1).all()
        and set(columns["action"]) == {0, 1}
        and set(columns["discount"]) == set(np.array([0, 0.99], np.float32))
    )


def test_returns_are_of_as_many_steps_as_the_horizon():
    columns, priorities = Games(replace(FEW, horizon=3), 0).play(200)
    assert set(columns["reward"]) <= set(np.array([1, 1.99, 1 + 0.99 * 1.99], np.float32))
    assert priorities.shape == (200,) and (priorities > 0).all()


def test_evaluation_repeats():
    weights = np.random.default_rng(1).normal(size=Games(FEW, 0).network.size).astype(np.float32)
    assert evaluate(weights, FEW, HELD_OUT) == evaluate(weights, FEW, HELD_OUT)


def test_a_game_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="must show a vector and take one of several actions"):
        Games(replace(FEW, environment="Pendulum-v1"), 0)


@pytest.mark.slow
@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole_is_solved(seed, lockstep):
    options = Options(seed=seed, lockstep=lockstep)
    _, learned, _ = train(options, capacity=1 << 15)
    assert np.mean(evaluate(learned.weights, options, HELD_OUT)) >= 450

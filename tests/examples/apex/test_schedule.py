"""The order of lockstep: every ticket belongs to exactly one operation, and what a round needs was published before."""

from dataclasses import replace

import pytest

from examples.apex.options import Options, Start
from examples.apex.schedule import Schedule

SMALL = Options(actors=3, add_items=8, batch=16, ratio=2.0, warmup=50, publish_every=6, evaluate_every=6, steps=60)
CASES = [
    (SMALL, 1),
    (SMALL, 2),
    (replace(SMALL, actors=1, add_items=16, ratio=1.0), 1),
    (replace(SMALL, warmup=1), 3),
    (replace(SMALL, actors=6), 1),
    (replace(Options(), lockstep=True), 2),
]


def operations(schedule, rounds):
    """(ticket, what) of all operations of so many rounds."""
    options, found = schedule.options, []
    for number in range(rounds):
        found += [
            (schedule.add(number, actor) + k, ("add", number, actor))
            for actor in range(options.actors)
            for k in range(schedule.turns_per_add)
        ]
    for step in range(max(0, rounds - schedule.warm_rounds) * schedule.steps):
        found += [(schedule.sample(step), ("sample", step)), (schedule.update(step), ("update", step))]
    return found


def broken(schedule, rounds):
    """Why the tickets are no total order without gaps; None if they are."""
    tickets = sorted(ticket for ticket, _ in operations(schedule, rounds))
    first = schedule.start.ticket
    return next(
        (f"{ticket} where {first + k} should be" for k, ticket in enumerate(tickets) if ticket != first + k), None
    )


@pytest.mark.parametrize("options,tickets", CASES)
@pytest.mark.parametrize("start", [1, 77])
def test_every_turn_belongs_to_one_operation(options, tickets, start):
    schedule = Schedule(options, Start(start), tickets)
    for rounds in (1, schedule.warm_rounds, schedule.warm_rounds + 1, schedule.warm_rounds + 5):
        assert broken(schedule, rounds) is None


@pytest.mark.parametrize("method", ["add", "sample", "update"])
def test_the_check_sees_a_turn_that_is_one_too_late(method, monkeypatch):
    right = getattr(Schedule, method)
    monkeypatch.setattr(Schedule, method, lambda self, number, *rest: right(self, number, *rest) + (number == 5))
    assert broken(Schedule(SMALL, Start()), 10)


@pytest.mark.parametrize("options,tickets", CASES)
def test_a_learner_draws_and_updates_before_it_draws_again_and_actors_go_by_rank(options, tickets):
    schedule = Schedule(options, Start(), tickets)
    order = [what for _, what in sorted(operations(schedule, schedule.warm_rounds + 3))]
    steps = [what for what in order if what[0] != "add"]
    assert steps == [(kind, step) for step in range(3 * schedule.steps) for kind in ("sample", "update")]
    assert [what for what in order if what[0] == "add"] == sorted(what for what in order if what[0] == "add")


@pytest.mark.parametrize("options,tickets", CASES)
def test_draws_for_each_item_are_as_many_as_the_ratio_says(options, tickets):
    schedule, added = Schedule(options, Start(), tickets), options.actors * options.add_items
    assert schedule.steps * options.batch == added * options.ratio
    assert (schedule.warm_rounds - 1) * added < options.warmup <= schedule.warm_rounds * added


@pytest.mark.parametrize("options,tickets", CASES)
def test_an_actor_of_a_round_finds_the_version_that_it_waits_for_and_no_newer_one(options, tickets):
    """When it adds, what was published is what the learner has published after the steps of all rounds before; while it
    waits, the learner cannot go beyond the steps of its own round, for which it lacks this actor's items."""
    schedule = Schedule(options, Start(1, 10), tickets)
    for number in range(schedule.warm_rounds + 20):
        steps = max(0, number - schedule.warm_rounds) * schedule.steps
        assert schedule.version(number) == 10 + 1 + steps // options.publish_every
        assert all(
            schedule.sample(step) > schedule.add(number, actor)
            for actor in range(options.actors)
            for step in range(steps, steps + schedule.steps)
        )


def test_after_the_last_turn_comes_one():
    schedule = Schedule(SMALL, Start(ticket=2**32 - 2))
    assert [schedule.add(0, actor) for actor in range(3)] == [2**32 - 2, 2**32 - 1, 1]


@pytest.mark.parametrize(
    "change,why",
    [
        ({"ratio": 0.5}, "must be a multiple of batch, 16, not 12"),
        ({"add_items": 9}, "must be a multiple of batch, 16, not 54"),
        (
            {"publish_every": 4, "evaluate_every": 4, "steps": 64},
            "must be a multiple of 3, the steps of a round, not 4",
        ),
    ],
)
def test_options_that_make_no_whole_rounds_are_refused(change, why):
    with pytest.raises(ValueError, match=why):
        Schedule(replace(SMALL, **change), Start())


@pytest.mark.parametrize(
    "change",
    [
        {"actors": 0},
        {"games": 0},
        {"batch": 0},
        {"discount": 1.5},
        {"ratio": 0.0},
        {"steps": 61},
        {"warmup": 0},
        {"evaluate_every": 10},
        {"horizon": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(change):
    with pytest.raises(ValueError, match=f"Options {next(iter(change))} must be"):
        replace(SMALL, **change)


def test_games_explore_less_and_less():
    options = Options(actors=2, games=3)
    rates = [options.epsilon_of(game) for game in range(6)]
    assert (
        rates[0] == options.epsilon
        and rates[-1] == pytest.approx(options.epsilon**8)
        and rates == sorted(rates, reverse=True)
    )
    assert Options(actors=1, games=1).epsilon_of(0) == Options().epsilon

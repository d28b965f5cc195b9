"""The deterministic order: every ticket belongs to one request, and the version that a round needs is published
before."""

from dataclasses import replace

import pytest

from examples.common.ticket_order import Schedule, Start

SMALL = Schedule(
    start=Start(), actors=3, add_size=8, batch_size=16, samples_per_insert=2.0, learning_starts=50, publish_interval=6
)
CASES = [
    SMALL,
    replace(SMALL, tickets_per_add=2),
    replace(SMALL, actors=1, add_size=16, samples_per_insert=1.0),
    replace(SMALL, learning_starts=1, tickets_per_add=3),
    replace(SMALL, actors=6),
    Schedule(
        start=Start(),
        actors=4,
        add_size=32,
        batch_size=64,
        samples_per_insert=4.0,
        learning_starts=1024,
        publish_interval=64,
        tickets_per_add=2,
    ),
]


def requests(schedule, rounds):
    """Return (ticket, request) for all requests of so many rounds."""
    found = []
    for number in range(rounds):
        found += [
            (schedule.add(number, actor) + k, ("add", number, actor))
            for actor in range(schedule.actors)
            for k in range(schedule.tickets_per_add)
        ]
    for step in range(max(0, rounds - schedule.warmup_rounds) * schedule.steps):
        found += [(schedule.sample(step), ("sample", step)), (schedule.update(step), ("update", step))]
    return found


def wrong_ticket(schedule, rounds):
    """Return the first ticket that leaves a gap or is used twice; None if there is none."""
    tickets = sorted(ticket for ticket, _ in requests(schedule, rounds))
    first = schedule.start.ticket
    return next(
        (f"{ticket} where {first + k} should be" for k, ticket in enumerate(tickets) if ticket != first + k), None
    )


@pytest.mark.parametrize("schedule", CASES)
@pytest.mark.parametrize("ticket", [1, 77])
def test_every_ticket_belongs_to_one_request(schedule, ticket):
    schedule = replace(schedule, start=Start(ticket))
    for rounds in (1, schedule.warmup_rounds, schedule.warmup_rounds + 1, schedule.warmup_rounds + 5):
        assert wrong_ticket(schedule, rounds) is None


@pytest.mark.mutant
@pytest.mark.parametrize("method", ["add", "sample", "update"])
def test_a_ticket_that_is_one_too_late_is_noticed(method, monkeypatch):
    right = getattr(Schedule, method)
    monkeypatch.setattr(Schedule, method, lambda self, number, *rest: right(self, number, *rest) + (number == 5))
    assert wrong_ticket(SMALL, 10)


@pytest.mark.parametrize("schedule", CASES)
def test_the_learner_samples_and_updates_in_turn_and_actors_add_by_rank(schedule):
    order = [request for _, request in sorted(requests(schedule, schedule.warmup_rounds + 3))]
    steps = [request for request in order if request[0] != "add"]
    assert steps == [(kind, step) for step in range(3 * schedule.steps) for kind in ("sample", "update")]
    assert [request for request in order if request[0] == "add"] == sorted(
        request for request in order if request[0] == "add"
    )


@pytest.mark.parametrize("schedule", CASES)
def test_samples_for_each_item_are_as_many_as_the_ratio_says(schedule):
    added = schedule.actors * schedule.add_size
    assert schedule.steps * schedule.batch_size == added * schedule.samples_per_insert
    assert (schedule.warmup_rounds - 1) * added < schedule.learning_starts <= schedule.warmup_rounds * added


@pytest.mark.parametrize("schedule", CASES)
def test_an_actor_of_a_round_finds_the_version_that_it_waits_for_and_no_newer_one(schedule):
    """When an actor adds, the learner has published the version after the steps of all rounds before. While the actor
    waits, the learner cannot pass the steps of this round, because it lacks this actor's items."""
    schedule = replace(schedule, start=Start(1, 10))
    for number in range(schedule.warmup_rounds + 20):
        steps = max(0, number - schedule.warmup_rounds) * schedule.steps
        assert schedule.version(number) == 10 + 1 + steps // schedule.publish_interval
        assert all(
            schedule.sample(step) > schedule.add(number, actor)
            for actor in range(schedule.actors)
            for step in range(steps, steps + schedule.steps)
        )


def test_ticket_1_follows_the_last_ticket():
    schedule = replace(SMALL, start=Start(ticket=2**32 - 2))
    assert [schedule.add(0, actor) for actor in range(3)] == [2**32 - 2, 2**32 - 1, 1]


@pytest.mark.parametrize(
    "change,message",
    [
        ({"samples_per_insert": 0.5}, "must be a multiple of batch_size, 16, not 12"),
        ({"add_size": 9}, "must be a multiple of batch_size, 16, not 54"),
        ({"publish_interval": 4}, "must be a multiple of 3, the steps of a round, not 4"),
    ],
)
def test_rounds_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)

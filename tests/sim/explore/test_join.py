"""The Join handshake in every state, with every Join, Leave, END and answer late, lost and repeated."""

import pytest

from iswitch.wire import JobState, Reason
from sim.explore.join import CRASHES, LEAVES, MOVES, Actor, JoinExplorer, JoinScenario
from sim.explore.search import Violation
from sim.model.decide import command
from sim.model.decide import join as golden

LEAVING = JoinScenario((Actor(1, fate=LEAVES), Actor(2), Actor(3, after=0)))
CRASHING = JoinScenario((Actor(1), Actor(2, fate=CRASHES), Actor(2, after=1)))
YIELDING = JoinScenario((Actor(1, 0), Actor(2, 1, fate=CRASHES), Actor(2, 1, after=1)), world=3)
MOVING = JoinScenario((Actor(1, fate=MOVES), Actor(2)))
ENDED = JoinScenario((Actor(1), Actor(2)), operator=True)
DEAD = JoinScenario((Actor(1, fate=CRASHES), Actor(2, fate=CRASHES), Actor(3, after=0)), challenges=1)
OTHER = JoinScenario((Actor(1, fate=CRASHES, key=7), Actor(2), Actor(3)))

RIGHT = {
    "two": (20, JoinScenario((Actor(1), Actor(2)))),
    "two want one index": (10, JoinScenario((Actor(1, 0), Actor(2, 0)), seats=1)),
    "three for two seats": (128, JoinScenario((Actor(1), Actor(2), Actor(3)))),
    "one crashes and comes again": (330, CRASHING),
    "one crashes and comes again at its index": (
        320,
        JoinScenario((Actor(1, 0), Actor(2, 1, CRASHES), Actor(2, 1, after=1))),
    ),
    "one crashes at its index while the job forms": (158, YIELDING),
    "one leaves and another one comes": (622, LEAVING),
    "one moves": (51, MOVING),
    "an operator ends the job": (570, ENDED),
    "both crash and others come": (1378, DEAD),
    "a worker of another program crashes before its job runs": (681, OTHER),
}


@pytest.mark.parametrize("name", RIGHT)
def test_joining_succeeds_from_every_state(name):
    states, scenario = RIGHT[name]
    assert JoinExplorer(scenario).run().count == states


def test_of_two_that_want_one_index_never_both_are_live():
    states = JoinExplorer(JoinScenario((Actor(1, 0), Actor(2, 0)), seats=1)).run().states
    assert {state.job.live.bit_count() for state in states} == {0, 1}
    assert all(state.job.state != JobState.RUNNING for state in states)


def without_challenge(config, job, request, source, offer, now_us):
    return golden.join(config, job, request._replace(challenge=job.challenge), source, offer, now_us)


def abandoned_jobs_stay(config, job, request, source, offer, now_us):
    verdict = golden.join(config, job, request, source, offer, now_us)
    has_ended = job.state != JobState.NONE == verdict.job.state
    return verdict._replace(job=job, reason=Reason.MEMBER) if has_ended else verdict


def unchanged(job):
    return job


@pytest.mark.mutant
@pytest.mark.parametrize("scenario", [LEAVING, MOVING, ENDED], ids=["leave", "move", "end"])
def test_mutant_joins_without_a_challenge_is_found(scenario):
    with pytest.raises(Violation, match="from before an end, a departure, a move"):
        JoinExplorer(JoinScenario(**vars(scenario) | {"join": without_challenge})).run()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("module", "scenario"), [(command, LEAVING), (golden, MOVING), (golden, CRASHING)], ids=["leave", "move", "replace"]
)
def test_mutant_a_challenge_that_stays_is_found(module, scenario, monkeypatch):
    monkeypatch.setattr(module, "with_next_challenge", unchanged)
    with pytest.raises(Violation, match="from before an end, a departure, a move"):
        JoinExplorer(scenario).run()


@pytest.mark.mutant
def test_mutant_silent_entries_never_yield_is_found(monkeypatch):
    monkeypatch.setattr(golden, "is_stale", lambda *_: False)
    with pytest.raises(Violation, match="an index stays free"):
        JoinExplorer(YIELDING).run()


@pytest.mark.mutant
@pytest.mark.parametrize("scenario", [DEAD, OTHER], ids=["all crashed", "half formed by another program"])
def test_mutant_abandoned_jobs_that_stay_are_found(scenario):
    with pytest.raises(Violation, match="an index stays free"):
        JoinExplorer(JoinScenario(**vars(scenario) | {"join": abandoned_jobs_stay})).run()

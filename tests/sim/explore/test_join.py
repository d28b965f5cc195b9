"""The Join handshake in every state, with every Join, Leave, END and answer late, lost and repeated."""

import pytest

from iswitch.golden.decide import command
from iswitch.golden.decide import join as golden
from iswitch.wire import JobState, Reason
from sim.explore.join import CRASHES, LEAVES, MOVES, Actor, JoinExplorer, JoinScenario
from sim.explore.search import Violation

LEAVING = JoinScenario((Actor(1, fate=LEAVES), Actor(2), Actor(3, after=0)))
CRASHING = JoinScenario((Actor(1), Actor(2, fate=CRASHES), Actor(2, after=1)))
YIELDING = JoinScenario((Actor(1, 0), Actor(2, 1, fate=CRASHES), Actor(2, 1, after=1)), world=3)
MOVING = JoinScenario((Actor(1, fate=MOVES), Actor(2)))
ENDED = JoinScenario((Actor(1), Actor(2)), operator=True)
DEAD = JoinScenario((Actor(1, fate=CRASHES), Actor(2, fate=CRASHES), Actor(3, after=0)), challenges=1)
RESTARTED = JoinScenario(
    (Actor(1, 0, CRASHES), Actor(2, 1, CRASHES), Actor(1, 0, after=0), Actor(2, 1, after=1)), running=2, challenges=3
)
RESTARTED_ANYWHERE = JoinScenario(
    (Actor(1, fate=CRASHES), Actor(2, fate=CRASHES), Actor(1, after=0), Actor(2, after=1)), running=2, challenges=3
)
OUTAGE = JoinScenario((Actor(1), Actor(2), Actor(3)), running=2, outage=True)
OUTAGE_OF_TWO = JoinScenario((Actor(1), Actor(2), Actor(3)), world=3, seats=3, running=2, outage=True)
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
    "both crash and others come": (1570, DEAD),
    "a worker of another program crashes before its job runs": (681, OTHER),
    "both crash, and the program starts again at their indices": (1922, RESTARTED),
    "both crash, and the program starts again": (1022, RESTARTED_ANYWHERE),
    "another worker comes after an outage": (23, OUTAGE),
    "an evicted worker comes again after an outage": (16, OUTAGE_OF_TWO),
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
@pytest.mark.parametrize("scenario", [RESTARTED, OTHER], ids=["all crashed", "half formed by another program"])
def test_mutant_abandoned_jobs_that_stay_are_found(scenario):
    with pytest.raises(Violation, match="forever"):
        JoinExplorer(JoinScenario(**vars(scenario) | {"join": abandoned_jobs_stay})).run()


def any_join_ends(config, job, request, source, offer, now_us):
    """An earlier rule: a silent job that runs ends when a Join of no member comes, of whatever program."""
    verdict = golden.join(config, job, request, source, offer, now_us)
    is_current = request.challenge == job.challenge and golden.own_index(job, request) is None
    if job.state == JobState.RUNNING and is_current and golden.is_abandoned(job, now_us):
        return verdict._replace(job=golden.ended(job), reason=Reason.CHALLENGE)
    return verdict


def takes_no_place(job, request, now_us):
    """A simpler rule: a Join of the job's own program is granted or refused."""
    return golden.Verdict(job, Reason.MEMBER, request.member, request.token)


@pytest.mark.mutant
@pytest.mark.parametrize("scenario", [OUTAGE, OUTAGE_OF_TWO], ids=["a new worker", "an evicted worker"])
def test_mutant_a_join_that_ends_the_job_of_its_own_program_is_found(scenario):
    with pytest.raises(Violation, match="ends the job of several members"):
        JoinExplorer(JoinScenario(**vars(scenario) | {"join": any_join_ends})).run()


@pytest.mark.mutant
@pytest.mark.parametrize("scenario", [RESTARTED, RESTARTED_ANYWHERE], ids=["at their indices", "anywhere"])
def test_mutant_silent_members_that_keep_their_places_are_found(scenario, monkeypatch):
    monkeypatch.setattr(golden, "remove_silent_member", takes_no_place)
    with pytest.raises(Violation, match="forever"):
        JoinExplorer(scenario).run()


@pytest.mark.mutant
def test_mutant_a_join_that_prefers_a_members_place_to_a_free_index_is_found(monkeypatch):
    """After an outage a worker that was evicted would take the place of a member that lives."""
    enter = golden.enter

    def refuse_if_silent(job, request, source, now_us, *, in_tree=False):
        verdict = enter(job, request, source, now_us, in_tree=in_tree)
        runs = job.state == JobState.RUNNING and golden.is_abandoned(job, now_us)
        return verdict._replace(job=job, reason=Reason.MEMBER) if runs else verdict

    monkeypatch.setattr(golden, "enter", refuse_if_silent)
    with pytest.raises(Violation, match="although an index is free"):
        JoinExplorer(OUTAGE_OF_TWO).run()

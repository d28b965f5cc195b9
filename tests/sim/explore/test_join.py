"""The Join handshake in every state, with every Join, Leave and answer late, lost and repeated."""

import pytest

from iswitch.wire import NO_MEMBER, JobState, Reason
from sim.explore.join import CRASHES, LEAVES, Actor, JoinExplorer, JoinScenario
from sim.explore.search import Violation
from sim.model.decide import join as golden
from sim.model.decide.job import EntryState, Verdict

RIGHT = {
    "two": (39, JoinScenario((Actor(1), Actor(2)))),
    "two want one index": (131, JoinScenario((Actor(1, 0), Actor(2, 0)), seats=1)),
    "three for two seats": (1378, JoinScenario((Actor(1), Actor(2), Actor(3)))),
    "one crashes and comes again": (655, JoinScenario((Actor(1), Actor(2, fate=CRASHES), Actor(2, after=1)))),
    "one crashes and comes again at its index": (
        484,
        JoinScenario((Actor(1, 0), Actor(2, 1, CRASHES), Actor(2, 1, after=1))),
    ),
    "all leave and come again": (
        14639,
        JoinScenario((Actor(1, fate=LEAVES), Actor(2, fate=LEAVES), Actor(1, after=0), Actor(2, after=1)), tokens=6),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_joining_succeeds_from_every_state(name):
    states, scenario = RIGHT[name]
    assert JoinExplorer(scenario).run().count == states


def test_of_two_that_want_one_index_never_both_are_live():
    states = JoinExplorer(JoinScenario((Actor(1, 0), Actor(2, 0)), seats=1)).run().states
    assert {state.job.live.bit_count() for state in states} == {0, 1}
    assert all(state.job.state != JobState.RUNNING for state in states)


def counted_at_the_first_join(config, job, request, source, offer, now_us):
    verdict = golden.join(config, job, request, source, offer, now_us)
    return verdict._replace(job=golden.confirm(verdict.job, verdict.member)) if verdict.accepts_offer else verdict


def only_a_free_index(config, job, request, source, offer, now_us):
    verdict = golden.join(config, job, request, source, offer, now_us)
    taken = job.entries and all(entry.state in (EntryState.PENDING, EntryState.LIVE) for entry in job.entries)
    if verdict.accepts_offer and request.member == NO_MEMBER and taken:
        return Verdict(job, Reason.MEMBER, request.member, request.token)
    return verdict


@pytest.mark.mutant
def test_mutant_membership_at_the_first_join_is_found():
    with pytest.raises(Violation, match="never received its token"):
        JoinExplorer(JoinScenario((Actor(1), Actor(2)), join=counted_at_the_first_join)).run()


@pytest.mark.mutant
def test_mutant_pending_entries_never_yield_is_found():
    with pytest.raises(Violation, match="an index stays free"):
        JoinExplorer(JoinScenario((Actor(1), Actor(2, fate=CRASHES), Actor(2, after=1)), join=only_a_free_index)).run()

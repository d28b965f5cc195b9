"""Joining in a tree of golden switches in every state, with every frame late, lost and repeated, and mutants of it."""

import pytest

from iswitch.wire import NO_MEMBER, JobState
from sim.explore.join_tree import TreeJoinExplorer, TreeJoinScenario
from sim.explore.search import Violation
from sim.model.decide import join
from sim.model.decide.job import EntryState
from sim.model.tree_switch import TreeSwitch

RIGHT = {
    "a leaf and a worker at the root": (396, (-1, 0), (0, 1)),
    "two at a leaf": (561, (-1, 0), (1, 1)),
    "two at a leaf and one at the root": (14007, (-1, 0), (0, 1, 1)),
    "two leaves": (1273, (-1, 0, 0), (1, 2)),
    "three levels": (1349, (-1, 0, 1), (2, 0)),
}


@pytest.mark.parametrize("states_ranks", [True, False], ids=["ranks", "indices"])
@pytest.mark.parametrize("name", RIGHT)
def test_joining_succeeds_from_every_state(name, states_ranks):
    states, *tree = RIGHT[name]
    assert TreeJoinExplorer(TreeJoinScenario(*tree, states_ranks=states_ranks)).run().count == states


def in_order_of_arrival(job, wanted, ranks, now_us):
    """An earlier rule: an index is not a rank."""
    free = [k for k, entry in enumerate(job.entries) if entry.state in (EntryState.FREE, EntryState.LEFT)]
    if any(entry.ranks & ranks for k, entry in enumerate(job.entries) if k not in free):
        return None
    return next(((k, 0) for k in free if wanted in (NO_MEMBER, k)), None)


def test_indices_in_order_of_arrival_keep_out_a_worker_that_asks_for_its_rank(monkeypatch):
    """A leaf that came first has been given the index that a worker at the root asks for."""
    monkeypatch.setattr(join, "assign_index", in_order_of_arrival)
    with pytest.raises(Violation, match="never receives running"):
        TreeJoinExplorer(TreeJoinScenario(*RIGHT["two at a leaf and one at the root"][1:], states_ranks=False)).run()


def test_a_leaf_never_returns_to_the_epoch_before_a_reset():
    states = TreeJoinExplorer(TreeJoinScenario((-1, 0), (0, 1), resets=True)).run().states
    leaf = [state.switches[1].job for state in states]
    assert len({job.epoch for job in leaf if job.state == JobState.RUNNING}) == 2


class Hasty(TreeSwitch):
    """A leaf that tells its members that the job runs once all below are live."""

    def decide(self, message, request, now_us):
        verdict = super().decide(message, request, now_us)
        if message.job in self.parents and self.all_ranks_live(0, verdict.job):
            return verdict._replace(job=verdict.job._replace(state=JobState.RUNNING))
        return verdict


class AsksOnce(TreeSwitch):
    """A leaf that sends its Join up only once, without a challenge."""

    def request_parent(self, number, *action):
        return [] if self.above[number].challenge else super().request_parent(number, *action)


class Gullible(TreeSwitch):
    """A leaf that adopts any epoch."""

    def adopt_epoch(self, number, epoch, first_seq):
        if self.jobs[number].epoch != epoch:
            self.above[number] = self.above[number]._replace(running=False)
        super().adopt_epoch(number, epoch, first_seq)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("switch", "promise"),
    [(Hasty, "a rank is missing"), (AsksOnce, "never receives running"), (Gullible, "returns to an earlier epoch")],
)
def test_mutant_is_found(switch, promise):
    with pytest.raises(Violation, match=promise):
        TreeJoinExplorer(TreeJoinScenario((-1, 0), (0, 1), resets=True, switch=switch)).run()

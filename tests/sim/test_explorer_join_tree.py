"""Joining in a tree of golden switches in every state, with every frame late, lost and repeated, and mutants of it."""

import pytest

from iswitch.wire import JobState
from sim.model.explorer_join_tree import JoinTreeExplorer
from sim.model.search import Violation
from sim.model.tree_switch import TreeSwitch

RIGHT = {
    "a leaf and a worker at the root": ((-1, 0), (0, 1)),
    "two at a leaf": ((-1, 0), (1, 1)),
    "two at a leaf and one at the root": ((-1, 0), (0, 1, 1)),
    "two leaves": ((-1, 0, 0), (1, 2)),
    "three levels": ((-1, 0, 1), (2, 0)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_joins_end_well_in_every_state(name):
    assert len(JoinTreeExplorer(*RIGHT[name]).run()) > 100


def test_a_leaf_never_goes_back_to_the_epoch_before_a_reset():
    states = JoinTreeExplorer((-1, 0), (0, 1), resets=True).run()
    leaf = [state.memories[1].job for state in states]
    assert len({job.epoch for job in leaf if job.state == JobState.RUNNING}) == 2


class Hasty(TreeSwitch):
    """Tells its members that the job runs when those below are there."""

    def decide(self, message, asked, now_us):
        verdict = super().decide(message, asked, now_us)
        if message.job in self.parents and self.whole(0, verdict.job):
            return verdict._replace(job=verdict.job._replace(state=JobState.RUNNING))
        return verdict


class AsksOnce(TreeSwitch):
    """Sends its Join up only once, without a token."""

    def ask(self, number, *action):
        return [] if self.above[number].token else super().ask(number, *action)


class Gullible(TreeSwitch):
    """Adopts whatever epoch it is told."""

    def adopt(self, number, epoch, first_seq):
        if self.jobs[number].epoch != epoch:
            self.above[number] = self.above[number]._replace(running=False)
        super().adopt(number, epoch, first_seq)


@pytest.mark.parametrize(("switch", "promise"), [
    (Hasty, "somebody is missing"), (AsksOnce, "never told that the job runs"), (Gullible, "goes back to an earlier epoch")])
def test_mutant_is_found(switch, promise):
    with pytest.raises(Violation, match=promise):
        JoinTreeExplorer((-1, 0), (0, 1), resets=True, switch=switch).run()

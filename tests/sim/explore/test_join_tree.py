"""Joining in a tree of golden switches in every state, with every frame late, lost and repeated, and mutants of it."""

import pytest

from iswitch.golden.decide import join
from iswitch.golden.decide.job import EntryState, live_ranks
from iswitch.golden.tree_switch import TreeSwitch
from iswitch.wire import NO_MEMBER, JobState
from sim.explore.join_tree import TreeJoinExplorer
from sim.explore.join_tree_scenario import TreeJoinScenario
from sim.explore.search import Violation

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


def in_order_of_arrival(job, wanted, ranks, yielding):
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


FAULTS = {
    "a reset at the root": {"homes": (0, 1), "resets": True},
    "a reset at the leaf": {"homes": (1, 0), "resets": True, "starts_running": True},
    "a leaf restarts": {"homes": (0, 1), "restarts": True, "starts_running": True},
    "a leaf is evicted": {"homes": (0, 1), "evicts": True, "starts_running": True},
}


def with_fault(name, **options):
    return TreeJoinExplorer(TreeJoinScenario((-1, 0), **FAULTS[name] | options))


@pytest.mark.parametrize("name", FAULTS)
def test_after_a_fault_all_come_to_a_later_epoch_and_are_told(name):
    states = with_fault(name).run().states
    leaf = [state.switches[1].job for state in states]
    assert len({job.epoch for job in leaf if job.state == JobState.RUNNING}) >= 2


ATTACKED = {
    "nothing else happens": {"homes": (1, 0)},
    "a reset at the root": {"homes": (0, 1), "resets": True},
    "a leaf restarts": {"homes": (0, 1), "restarts": True},
    "two leaves": {"parents": (-1, 0, 0), "homes": (1, 2)},
}


def attacked(name, **options):
    settings = {"parents": (-1, 0), "starts_running": True, "attacks": True, "states_ranks": False}
    return TreeJoinExplorer(TreeJoinScenario(**settings | ATTACKED[name] | options)).run()


@pytest.mark.parametrize("name", ATTACKED)
def test_no_worker_takes_the_place_of_a_leaf(name):
    assert attacked(name).states


class Trusting(TreeSwitch):
    """A switch that lets any host name ranks."""

    def tree_objection(self, request, job, leaf):
        return super().tree_objection(request._replace(operator_key=self.operator_key), job, leaf)


@pytest.mark.mutant
def test_a_root_that_lets_any_host_name_ranks_gives_it_the_place_of_a_leaf():
    with pytest.raises(Violation, match="does not know the operator key"):
        attacked("nothing else happens", switch=Trusting)


@pytest.mark.mutant
def test_a_root_that_knows_a_leaf_by_nonce_and_token_alone_gives_its_place_to_a_worker(monkeypatch):
    monkeypatch.setattr(join, "is_same_kind", lambda *a: True)
    with pytest.raises(Violation, match="does not know the operator key"):
        attacked("nothing else happens")


class Hasty(TreeSwitch):
    """A leaf that tells its members that the job runs once all below are live."""

    def decide(self, message, request, now_us):
        verdict = super().decide(message, request, now_us)
        if message.job in self.parents and live_ranks(verdict.job) == self.parents[0].ranks:
            return verdict._replace(job=verdict.job._replace(state=JobState.RUNNING))
        return verdict


class AsksOnce(TreeSwitch):
    """A leaf that sends its Join up only once, without a challenge."""

    def request_parent(self, number, *action):
        return [] if self.above[number].challenge else super().request_parent(number, *action)


class Gullible(TreeSwitch):
    """A leaf that adopts any epoch."""

    def adopt_epoch(self, number, epoch, first_seq, *, renewed):
        if self.jobs[number].epoch != epoch:
            self.jobs[number] = self.jobs[number]._replace(state=JobState.FORMING)
        super().adopt_epoch(number, epoch, first_seq, renewed=renewed)


class Unchanged(TreeSwitch):
    """A leaf that begins anew with the nonce that it had."""

    def take_next_nonce(self, number):
        pass


class Silent(TreeSwitch):
    """A leaf that does not pass on that the job has begun anew."""

    def adopt_epoch(self, number, epoch, first_seq, *, renewed):
        super().adopt_epoch(number, epoch, first_seq, renewed=False)


class Deaf(TreeSwitch):
    """A leaf that ends nothing and begins nothing when its parent does not know it."""

    def join_again(self, number):
        return [] if self.jobs[number].state == JobState.RUNNING else super().join_again(number)


MUTANTS = {
    "runs too early": ("a reset at the root", Hasty, "a rank is missing"),
    "asks once": ("a reset at the root", AsksOnce, "never receives running"),
    "adopts any epoch": ("a reset at the root", Gullible, "returns to an earlier one"),
    "keeps its nonce": ("a reset at the leaf", Unchanged, "empties its slots twice in an epoch"),
    "tells nobody": ("a reset at the root", Silent, "is not told that the job has begun anew"),
    "stays outside": ("a leaf is evicted", Deaf, "never receives running"),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name):
    fault, switch, promise = MUTANTS[name]
    with pytest.raises(Violation, match=promise):
        with_fault(fault, switch=switch).run()


@pytest.mark.mutant
def test_a_root_that_admits_without_a_new_epoch_lets_a_leaf_empty_its_slots_within_one(monkeypatch):
    monkeypatch.setattr(join, "begin_anew", lambda config, job, *, is_leaf: job)
    with pytest.raises(Violation, match="empties its slots twice in an epoch"):
        with_fault("a leaf restarts").run()


@pytest.mark.mutant
def test_a_root_where_no_place_yields_keeps_a_leaf_out_that_has_restarted(monkeypatch):
    monkeypatch.setattr(join, "yields", lambda *a, **b: False)
    with pytest.raises(Violation, match="never receives running"):
        with_fault("a leaf restarts").run()

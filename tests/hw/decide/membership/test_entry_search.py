"""The search for a Join's entry, alone."""

import pytest

import hw.decide.membership.entry_search
import hw.decide.membership.settings
from hw.decide.membership.entry_search import EntrySearch
from hw.decide.membership.procedure import FollowUp
from iswitch.config import Config
from iswitch.wire import JobState, Reason
from sim.bench.mutant import mutant
from sim.bench.procedure import ProcedureBench, address
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=4, jobs=2, window=2, elements=16, queue_bytes=4096)
SETTINGS = {"world": 4, "elements": 8}


class Search(ProcedureBench):
    """A bench in which job 0 may have members; `find` returns reason, index and whether that is the sender's own."""

    def __init__(self):
        super().__init__(EntrySearch(CONFIG), strobes=("entry", "own", "moves", "replaces"))

    def seat(self, index, client, **entry):
        self.entries[0][index] |= {
            "live": 1,
            "nonce": client.nonce,
            "token": client.token,
            "port": client.port,
            "address": address(client),
            "ranks": 1 << index,
        } | entry

    def find(self, client, *, stale=0, in_tree=0, operator_key=0, sent_key=0, **options):
        frame = client.join(**SETTINGS | {"operator_key": sent_key} | options)
        request = self.request(frame, port=client.port, operator_key=operator_key)
        [self.outcome] = self.run(request, inputs={"stale": stale, "in_tree": in_tree})
        strobes = self.outcome.strobes
        return self.outcome.reason, strobes["entry"][-1], strobes["own"][-1]


def test_the_lowest_free_entry_is_found_in_a_cycle_for_each_entry_and_four():
    bench = Search()
    assert bench.find(Client.numbered(1)) == (Reason.DONE, 0, 0)
    assert bench.outcome.cycles == CONFIG.members + 4


def test_the_wanted_entry_is_found_or_refused():
    bench = Search()
    assert bench.find(Client.numbered(1), member=2) == (Reason.DONE, 2, 0)
    assert bench.find(Client.numbered(1), member=4)[0] == Reason.MEMBER


def with_job(**job):
    """A bench whose job has the settings of a Join that was read back."""
    bench, client = Search(), Client.numbered(1)
    client.join(**SETTINGS)
    settings = client.settings
    bench.jobs[0] |= {
        "state": JobState.FORMING,
        "key": client.key,
        "numeric": settings["format"],
        **{name: settings.get(name, 0) for name in ("world", "threshold", "fraction", "elements", "mode")},
        **{name: settings.get(name, 0) for name in ("deadline_us", "evict_us", "staleness", "segments")},
    } | job
    bench.jobs[0]["fraction"] %= 512
    return bench


def sharing_key(number):
    client = Client.numbered(number)
    client.key = Client.numbered(1).key
    return client


def test_the_senders_own_entry_is_found_whatever_it_wants():
    bench, client = with_job(live=0b0010), sharing_key(2)
    bench.seat(1, client)
    assert bench.find(client, member=3) == (Reason.DONE, 1, 1)


def test_the_settings_of_the_job_are_compared_before_entries():
    bench, client = with_job(), sharing_key(2)
    bench.seat(1, client)
    assert bench.find(client, elements=7)[0] == Reason.ELEMENTS
    assert bench.find(client, world=9)[0] == Reason.WORLD


def test_a_silent_members_entry_yields_while_the_job_forms():
    bench = with_job(live=0b1111)
    for index in range(4):
        bench.seat(index, Client.numbered(10 + index))
    assert bench.find(sharing_key(2))[0] == Reason.MEMBER
    assert bench.find(sharing_key(2), stale=0b0100) == (Reason.DONE, 2, 0)
    assert bench.outcome.strobes["replaces"][-1]
    bench.jobs[0]["state"] = JobState.RUNNING
    assert bench.find(sharing_key(2), stale=0b0100)[0] == Reason.MEMBER


@pytest.mark.parametrize("state", [JobState.FORMING, JobState.RUNNING])
def test_a_job_whose_live_members_are_all_silent_ends_when_a_join_of_another_program_comes(state):
    bench = with_job(live=0b0011, state=state)
    for index in range(2):
        bench.seat(index, Client.numbered(10 + index))
    refused = sharing_key(2)
    assert bench.find(refused, elements=7, stale=0b0001)[0] == Reason.ELEMENTS
    assert bench.find(refused, elements=7, stale=0b0011)[0] == Reason.CHALLENGE
    assert bench.outcome.follow_up == FollowUp.ERASE_JOB
    assert bench.find(refused, elements=7, stale=0b0011, challenge=1)[0] == Reason.CHALLENGE
    assert bench.outcome.follow_up == FollowUp.NONE
    same_program = bench.find(refused, member=1, stale=0b0011)
    assert same_program == ((Reason.DONE if state == JobState.FORMING else Reason.CHALLENGE), 1, 0)
    refused.key += 1
    assert bench.find(refused, stale=0b0011)[0] == Reason.CHALLENGE
    assert bench.outcome.follow_up == FollowUp.ERASE_JOB


SILENT = {
    "a free index": (0b0111, 255, (Reason.DONE, 3), FollowUp.NONE),
    "its index is free": (0b0111, 3, (Reason.DONE, 3), FollowUp.NONE),
    "no free index": (0b1111, 255, (Reason.CHALLENGE, 0), FollowUp.DEPART),
    "its index is a silent member's": (0b1111, 2, (Reason.CHALLENGE, 2), FollowUp.DEPART),
    "its index is a silent member's, another one is free": (0b0111, 1, (Reason.CHALLENGE, 1), FollowUp.DEPART),
    "its index is out of range": (0b1111, 4, (Reason.MEMBER, 0), FollowUp.NONE),
    "its index is a joining member's": (0b0111, 3, (Reason.MEMBER, 0), FollowUp.NONE),
}
"""The live entries of a job that runs, the wanted index, and what a Join finds if all live members are silent."""


@pytest.mark.parametrize("case", SILENT)
def test_a_worker_of_the_same_program_takes_at_most_one_silent_members_place(case):
    live, wanted, found, follow_up = SILENT[case]
    bench = with_job(live=live, state=JobState.RUNNING)
    for index in range(4):
        if live >> index & 1 or "joining" in case:
            bench.seat(index, Client.numbered(10 + index))
    reason, index, _ = bench.find(sharing_key(2), member=wanted, stale=live)
    assert (reason, index if reason != Reason.MEMBER else 0, bench.outcome.follow_up) == (*found, follow_up)
    assert bench.find(sharing_key(2), member=wanted, stale=live & live - 1)[0] in (Reason.DONE, Reason.MEMBER)
    assert bench.outcome.follow_up == FollowUp.NONE


def test_in_a_tree_that_runs_a_job_of_silent_members_ends_also_for_its_own_program():
    bench = with_job(live=0b0011, state=JobState.RUNNING)
    for index in range(2):
        bench.seat(index, Client.numbered(10 + index))
    assert bench.find(sharing_key(2), stale=0b0011, in_tree=1)[0] == Reason.CHALLENGE
    assert bench.outcome.follow_up == FollowUp.ERASE_JOB


def test_a_joining_member_of_a_job_of_silent_members_stays_one():
    bench, client = with_job(live=0b0001, joining=0b0010, state=JobState.RUNNING), sharing_key(2)
    bench.seat(0, Client.numbered(10))
    bench.seat(1, client)
    assert bench.find(client) == (Reason.DONE, 1, 1)
    assert bench.find(client, stale=1) == (Reason.DONE, 1, 1)
    assert bench.outcome.follow_up == FollowUp.NONE


def test_a_member_that_moves_needs_the_challenge():
    bench, client = with_job(live=0b0010), sharing_key(2)
    bench.seat(1, client)
    client.udp_port += 1
    assert bench.find(client, challenge=1)[0] == Reason.CHALLENGE
    assert bench.find(client) == (Reason.DONE, 1, 1) and bench.outcome.strobes["moves"][-1]


def test_a_join_with_another_challenge_is_refused():
    assert with_job(challenge=9, live=1).find(sharing_key(2), challenge=8)[0] == Reason.CHALLENGE
    assert with_job(challenge=9, live=1).find(sharing_key(2), challenge=9) == (Reason.DONE, 0, 0)


YIELDS = {
    "another host": (0, {"token": 1, "port": 3}, False),
    "same port and addresses": (0, {"token": 1, "port": 2}, True),
    "same token": (0, {"port": 3}, True),
    "silent": (1, {"token": 1, "port": 3}, True),
}
"""In a tree that runs: if an entry is silent, how it differs from the Join, and if the Join gets its place."""


@pytest.mark.parametrize(("stale", "entry", "found"), YIELDS.values(), ids=YIELDS)
def test_in_a_tree_that_runs_a_member_yields_to_itself_after_a_restart_and_if_it_is_silent(stale, entry, found):
    bench, client = with_job(live=0b11, state=JobState.RUNNING), sharing_key(2)
    bench.seat(0, client, nonce=5, **entry)
    assert (bench.find(client, member=0, stale=stale, in_tree=1)[0] == Reason.DONE) == found
    assert bench.outcome.strobes["replaces"][-1] == found


OPERATOR = {
    "a switch of a tree with an operator key": (0b11, 77, 77, Reason.DONE),
    "a switch of a tree without one": (0b11, 0, 0, Reason.DONE),
    "a member that does not know it": (0b11, 0, 77, Reason.OPERATOR_KEY),
    "a member that guesses": (0b10, 76, 77, Reason.OPERATOR_KEY),
    "a switch of another operator": (0b11, 77, 0, Reason.OPERATOR_KEY),
    "a worker": (0, 0, 77, Reason.DONE),
    "a worker that is told of it": (0, 77, 77, Reason.DONE),
}


@pytest.mark.parametrize(("ranks", "sent_key", "operator_key", "reason"), OPERATOR.values(), ids=OPERATOR)
def test_a_join_that_names_ranks_needs_the_operator_key(ranks, sent_key, operator_key, reason):
    client = Client.numbered(2)
    client.ranks = ranks
    assert Search().find(client, in_tree=1, sent_key=sent_key, operator_key=operator_key)[0] == reason


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("ranks", [0, 0b01])
@pytest.mark.parametrize("sends_uplinks", [0, 1])
def test_a_join_of_a_worker_is_never_that_of_a_switch(sends_uplinks, ranks, moved):
    """A leaf has the nonce and the token of one of its workers."""
    bench, client = with_job(live=0b01, ranks=0b01, state=JobState.RUNNING), sharing_key(2)
    bench.seat(0, client, sends_uplinks=sends_uplinks, port=client.port ^ moved)
    client.ranks = ranks
    same_kind = bool(ranks) == sends_uplinks
    reason, _, own = bench.find(client, member=0, in_tree=1)
    assert (reason, own) == (Reason.DONE if same_kind else Reason.MEMBER, same_kind)
    reason, _, own = bench.find(client, member=0, in_tree=1, nonce=7)
    assert (reason, own) == (Reason.DONE if same_kind else Reason.MEMBER, 0)


@pytest.mark.mutant
@pytest.mark.parametrize("sound", ["taken & same_kind", "self.in_tree & same_kind"])
def test_a_mutant_for_which_a_worker_may_be_a_switch_is_killed(monkeypatch, sound):
    changed = mutant(hw.decide.membership.entry_search, sound, sound.removesuffix(" & same_kind"))
    monkeypatch.setitem(globals(), "EntrySearch", changed.EntrySearch)
    with pytest.raises(AssertionError):
        for moved in (False, True):
            test_a_join_of_a_worker_is_never_that_of_a_switch(1, 0, moved)


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["1", "request.operator_key_same", "(members == 0) | request.from_operator"])
def test_a_mutant_that_asks_for_another_operator_key_is_killed(monkeypatch, wrong):
    changed = mutant(hw.decide.membership.settings, "(members == 0) | request.operator_key_same", wrong)
    monkeypatch.setattr(hw.decide.membership.entry_search, "limits_in_tree", changed.limits_in_tree)
    with pytest.raises(AssertionError):
        for case in OPERATOR.values():
            test_a_join_that_names_ranks_needs_the_operator_key(*case)


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["token_same", "port_same & address_same"])
def test_a_mutant_that_gives_a_member_no_place_of_its_own_is_killed(monkeypatch, wrong):
    changed = mutant(hw.decide.membership.entry_search, "token_same | port_same & address_same", wrong)
    monkeypatch.setitem(globals(), "EntrySearch", changed.EntrySearch)
    with pytest.raises(AssertionError):
        for case in YIELDS.values():
            test_in_a_tree_that_runs_a_member_yields_to_itself_after_a_restart_and_if_it_is_silent(*case)


@pytest.mark.parametrize("stale", [0, 0b1000])
def test_an_entry_that_holds_the_wanted_rank_is_cleared_if_it_yields(stale):
    bench = with_job(live=0b1000, ranks=0b0001)
    bench.seat(3, Client.numbered(10), ranks=0b0001)
    reason, index, _ = bench.find(sharing_key(2), member=0, stale=stale)
    if not stale:
        assert reason == Reason.MEMBER
        return
    assert (reason, index, bench.outcome.cycles) == (Reason.DONE, 0, 2 * (CONFIG.members + 4) + 2)
    assert (bench.entries[0][3]["live"], bench.jobs[0]["live"]) == (0, 0)
    assert bench.outcome.strobes["replaces"][-1]


def test_a_switch_that_comes_back_with_other_ranks_has_its_place_though_no_other_member_is_live():
    """Its old entry, the last live one, is cleared on the way. That is no job of silent members."""
    bench, client = with_job(live=0b0001, ranks=0b0011, tree=1, state=JobState.RUNNING), sharing_key(2)
    bench.seat(0, client, ranks=0b0011, sends_uplinks=1, nonce=client.nonce ^ 1)
    client.ranks = 0b0110
    assert bench.find(client, in_tree=1) == (Reason.DONE, 1, 0)
    assert bench.outcome.follow_up == FollowUp.NONE and bench.outcome.strobes["replaces"][-1]


@pytest.mark.mutant
def test_a_mutant_that_counts_a_cleared_entry_as_a_silent_one_is_killed(monkeypatch):
    wrong = mutant(hw.decide.membership.entry_search, "abandoned.eq(Mux(cleared, abandoned,", "abandoned.eq(Mux(0, 0,")
    monkeypatch.setitem(globals(), "EntrySearch", wrong.EntrySearch)
    with pytest.raises(AssertionError):
        test_a_switch_that_comes_back_with_other_ranks_has_its_place_though_no_other_member_is_live()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("yielding.any() & ~(admits_later & empty.any())", "yielding.any()"),
        ("self.follow_up.eq(FollowUp.DEPART)", "self.follow_up.eq(FollowUp.ERASE_JOB)"),
        ("~(refused | objection) & yields", "~(refused | objection)"),
    ],
    ids=["takes a place although an index is free", "ends the job", "removes a member that is not there"],
)
def test_a_mutant_that_takes_too_much_of_a_silent_job_is_killed(monkeypatch, sound, wrong):
    changed = mutant(hw.decide.membership.entry_search, sound, wrong)
    monkeypatch.setitem(globals(), "EntrySearch", changed.EntrySearch)
    with pytest.raises(AssertionError):
        for case in SILENT:
            test_a_worker_of_the_same_program_takes_at_most_one_silent_members_place(case)

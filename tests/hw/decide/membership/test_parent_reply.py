"""Replies of a leaf's parent, alone."""

import dataclasses

import pytest

import hw.decide.membership.parent_reply
from hw.decide.membership.parent_reply import ParentReply
from hw.decide.membership.procedure import FollowUp
from hw.interface.layout import layout
from iswitch.config import Config
from iswitch.wire import ACK, NO_MEMBER, AckRegister, Action, JobState, Reason, Type, version_type
from sim.bench.mutant import mutant
from sim.bench.procedure import ProcedureBench
from sim.bench.stream import pack
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)
NONCE, TOKEN = 77, 0xDEADBEEF
RUNS = {"state": JobState.RUNNING}


def reply(body=None, kind=Type.ACK, job=None, **header):
    """What becomes of a reply: a bench with the leaf's job, and the outcome."""
    bench = ProcedureBench(ParentReply(CONFIG), strobes=("unknown", "requests_parent"))
    bench.jobs[0] |= {"state": JobState.FORMING, "up_nonce": NONCE, "up_token": TOKEN, "epoch": 5} | (job or {})
    frame = Client.numbered(1).frame(
        kind, bytes(64), **{"version_type": version_type(kind), "token": TOKEN, "epoch": 5, "member": 2} | header
    )
    request = bench.request(frame, from_parent=1, is_leaf=1)
    said = {"action": Action.JOIN, "nonce": NONCE, "window": CONFIG.window} | (body or {})
    request["headers"]["body"] = pack(layout(ACK), said)
    [outcome] = bench.run(request)
    return bench, outcome


def registers(challenge, job_token):
    return challenge | job_token << 32


def test_a_granted_join_gives_the_switch_its_place_and_the_token_of_the_parents_job():
    bench, outcome = reply({"registers": registers(3, 0xCAFE)})
    job = bench.jobs[0]
    assert (job["up_member"], job["up_job_token"], job["up_reason"], job["up_ran"]) == (2, 0xCAFE, Reason.DONE, 0)
    assert outcome == (Reason.DONE, FollowUp.NONE, 1, {"unknown": [0], "requests_parent": [0]})


@pytest.mark.parametrize(("known", "requests"), [(0, 1), (3, 0)])
def test_the_parents_challenge_is_carried_by_the_next_join_which_goes_up_at_once(known, requests):
    bench, outcome = reply({"reason": Reason.CHALLENGE, "registers": registers(3, 0)}, job={"up_challenge": known})
    assert outcome == (Reason.DONE, FollowUp.NONE, 1, {"unknown": [0], "requests_parent": [requests]})
    assert (bench.jobs[0]["up_challenge"], bench.jobs[0]["up_nonce"]) == (3, NONCE)


@pytest.mark.parametrize(("known", "joins"), [(0, True), (3, False)])
def test_another_challenge_while_the_job_runs_makes_the_leaf_begin_anew(known, joins):
    """With the known one, the answer to an earlier Join has come late."""
    body = {"reason": Reason.CHALLENGE, "registers": registers(3, 0)}
    bench, outcome = reply(body, job=RUNS | {"up_challenge": known})
    follow_up = FollowUp.EMPTY_RING if joins else FollowUp.NONE
    assert outcome == (Reason.DONE, follow_up, 1, {"unknown": [0], "requests_parent": [joins]})
    job = bench.jobs[0]
    assert (job["up_challenge"], job["up_nonce"], job["epoch"]) == (3, NONCE + joins, 5)
    assert job["state"] == (JobState.FORMING if joins else JobState.RUNNING)


@pytest.mark.parametrize("reason", [Reason.MEMBER, Reason.TOKEN, Reason.PORT, Reason.ADDRESS])
@pytest.mark.parametrize(("epoch", "joins"), [(5, True), (4, False), (6, False)])
def test_a_leaf_that_its_parent_does_not_know_in_this_epoch_joins_again_and_begins_anew(reason, epoch, joins):
    bench, outcome = reply(kind=Type.NOTICE, job=RUNS | {"up_reason": Reason.MEMBER}, count=reason, epoch=epoch)
    follow_up = FollowUp.EMPTY_RING if joins else FollowUp.NONE
    assert outcome == (Reason.DONE, follow_up, 1, {"unknown": [0], "requests_parent": [joins]})
    job = bench.jobs[0]
    assert (job["state"] == JobState.FORMING, job["up_nonce"]) == (joins, NONCE + joins)
    assert job["up_reason"] == (Reason.DONE if joins else Reason.MEMBER)


def test_a_job_that_runs_takes_over_epoch_and_first_seq_and_needs_an_empty_ring():
    renewed = registers(0, 0) | 1 << 32 * AckRegister.RENEWED
    bench, outcome = reply({"state": JobState.RUNNING, "first_seq": 40, "registers": renewed}, epoch=9)
    job = bench.jobs[0]
    assert (job["state"], job["epoch"], job["first_seq"], job["up_ran"]) == (JobState.RUNNING, 9, 40, 1)
    assert job["renewed"] == 1
    assert outcome[:3] == (Reason.DONE, FollowUp.EMPTY_RING, 3)


@pytest.mark.parametrize(("epoch", "taken"), [(4, False), (5, False), (6, True), (5 + 2**15, False)])
def test_only_a_later_epoch_is_taken_over_by_a_job_that_runs(epoch, taken):
    job = {"state": JobState.RUNNING}
    bench, outcome = reply({"state": JobState.RUNNING, "first_seq": 40}, job=job, epoch=epoch)
    assert (bench.jobs[0]["epoch"], outcome.follow_up == FollowUp.EMPTY_RING) == (epoch if taken else 5, taken)


MUTANTS = {
    "a late notice": (
        ("m.Elif(~other_epoch)", "m.Else()"),
        lambda: test_a_leaf_that_its_parent_does_not_know_in_this_epoch_joins_again_and_begins_anew(
            reason=Reason.MEMBER, epoch=4, joins=False
        ),
    ),
    "an earlier epoch": (
        ("later_epoch.eq((epochs_ahead != 0) & ~epochs_ahead[15])", "later_epoch.eq(epochs_ahead != 0)"),
        lambda: test_only_a_later_epoch_is_taken_over_by_a_job_that_runs(epoch=4, taken=False),
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize(("change", "check"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_that_believes_late_replies_is_killed(monkeypatch, change, check):
    check()
    changed = mutant(hw.decide.membership.parent_reply, *change)
    monkeypatch.setitem(globals(), "ParentReply", changed.ParentReply)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize(
    ("reason", "kept"), [(Reason.MEMBER, Reason.MEMBER), (Reason.TOKEN, Reason.TOKEN), (200, max(Reason))]
)
def test_a_refusal_is_kept_for_the_members(reason, kept):
    bench, outcome = reply({"reason": reason})
    job = bench.jobs[0]
    assert (job["up_member"], job["up_token"], job["up_reason"]) == (NO_MEMBER, TOKEN, kept)
    assert outcome.follow_up == FollowUp.NONE


def test_another_window_is_a_refusal():
    bench, _ = reply({"window": 2 * CONFIG.window})
    assert bench.jobs[0]["up_reason"] == Reason.ELEMENTS


def test_the_acknowledgement_of_a_leave_ends_the_job():
    _, outcome = reply({"action": Action.LEAVE})
    assert outcome.follow_up == FollowUp.ERASE_JOB


@pytest.mark.parametrize("action", [Action.JOIN, Action.LEAVE])
def test_an_acknowledgement_with_another_nonce_is_unknown_and_changes_nothing(action):
    bench, outcome = reply({"nonce": NONCE + 1, "action": action})
    assert outcome == (Reason.DONE, FollowUp.NONE, 1, {"unknown": [1], "requests_parent": [0]})
    assert bench.jobs[0]["up_token"] == TOKEN


@pytest.mark.parametrize(
    ("reason", "job", "header", "expected"),
    [
        (Reason.EPOCH, RUNS, {"epoch": 6}, (FollowUp.NONE, 0, 1)),
        (Reason.EPOCH, RUNS, {"epoch": 5}, (FollowUp.NONE, 0, 0)),
        (Reason.JOB, RUNS, {}, (FollowUp.ERASE_JOB, 0, 0)),
        (Reason.TOKEN, RUNS, {"token": 1}, (FollowUp.NONE, 1, 0)),
        (Reason.JOB, {}, {}, (FollowUp.NONE, 1, 0)),
    ],
)
def test_a_notice_asks_for_the_epoch_or_ends_the_job_if_it_is_about_this_one(reason, job, header, expected):
    _, outcome = reply(kind=Type.NOTICE, job=job, count=reason, **header)
    assert (outcome.follow_up, outcome.strobes["unknown"][0], outcome.strobes["requests_parent"][0]) == expected


def test_config_wrong():
    with pytest.raises(ValueError, match="ParentReply config must have uplinks, not False"):
        ParentReply(dataclasses.replace(CONFIG, uplinks=False))

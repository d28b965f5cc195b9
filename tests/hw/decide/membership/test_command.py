"""Commands alone: what each writes, what has to follow, and that every action is a case of its own."""

import dataclasses

import pytest

import hw.decide.membership.command
from hw.decide.membership.command import COMMANDS, Command
from hw.decide.membership.procedure import FollowUp
from iswitch.config import Config
from iswitch.wire import Action, JobState, Reason
from sim.bench.mutant import mutant
from sim.bench.procedure import ProcedureBench, address
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)


def joined(part=Command, config=CONFIG):
    """A bench with a running job, and the client that is its member 1."""
    bench, client = ProcedureBench(part(config)), Client.numbered(5, port=2, job=1)
    client.member, client.token, client.epoch = 1, 0xDEADBEEF, 7
    bench.jobs[1] |= {
        "state": JobState.RUNNING,
        "epoch": 7,
        "world": 3,
        "threshold": 3,
        "key": client.key,
        "live": 0b111,
    }
    bench.entries[1][1] |= {
        "live": 1,
        "token": client.token,
        "port": client.port,
        "number": 0,
        "address": address(client),
    }
    return bench, client


def answer(bench, client, frame, **options):
    [outcome] = bench.run(bench.request(frame, port=client.port, **options), member=1)
    return outcome


def test_set_h_writes_the_threshold_and_uses_its_number_up():
    bench, client = joined()
    assert answer(bench, client, client.set_h(2))[:3] == (Reason.DONE, FollowUp.NONE, 3)
    assert (bench.jobs[1]["threshold"], bench.entries[1][1]["number"]) == (2, client.number)


@pytest.mark.parametrize(("mode", "state"), [(1, JobState.HALTED), (0, JobState.RUNNING)])
def test_halt_writes_the_state_but_not_while_the_job_forms(mode, state):
    bench, client = joined()
    assert answer(bench, client, client.rising(Action.HALT, {"mode": mode})).reason == Reason.DONE
    assert bench.jobs[1]["state"] == state
    bench, client = joined()
    bench.jobs[1]["state"] = JobState.FORMING
    assert answer(bench, client, client.rising(Action.HALT, {"mode": mode})).reason == Reason.DONE
    assert bench.jobs[1]["state"] == JobState.FORMING


def test_reset_raises_the_epoch_and_asks_for_an_empty_ring():
    bench, client = joined()
    assert answer(bench, client, client.reset())[:2] == (Reason.DONE, FollowUp.EMPTY_RING)
    assert (bench.jobs[1]["epoch"], bench.jobs[1]["challenge"]) == (8, 1)


@pytest.mark.parametrize(
    ("command", "follow_up"),
    [("leave", FollowUp.DEPART), ("fbcast", FollowUp.FORCE_SLOT), ("end_job", FollowUp.ERASE_JOB)],
)
def test_others_write_nothing_and_say_what_has_to_follow(command, follow_up):
    bench, client = joined()
    before = dict(bench.jobs[1]), dict(bench.entries[1][1])
    frame = client.fbcast(0) if command == "fbcast" else getattr(client, command)()
    assert answer(bench, client, frame)[:2] == (Reason.DONE, follow_up)
    assert (bench.jobs[1], bench.entries[1][1]) == before


@pytest.mark.parametrize(
    ("key", "sent", "operator_key", "challenge", "reason"),
    [
        (None, 0, 0, 5, Reason.DONE),
        (None, 0, 77, 5, Reason.DONE),
        (0, 77, 77, 5, Reason.DONE),
        (77, 0, 77, 5, Reason.KEY),
        (0, 77, 78, 5, Reason.KEY),
        (0, 77, 0, 5, Reason.KEY),
        (0, 0, 0, 5, Reason.KEY),
        (None, 0, 0, 4, Reason.CHALLENGE),
        (0, 77, 77, 6, Reason.CHALLENGE),
    ],
)
def test_an_end_needs_a_key_and_the_present_challenge(key, sent, operator_key, challenge, reason):
    bench, client = joined()
    bench.jobs[1]["challenge"] = 5
    frame = client.end_job(key, challenge, operator_key=sent)
    outcome = answer(bench, client, frame, operator_key=operator_key)
    assert outcome[:2] == (reason, FollowUp.NONE if reason else FollowUp.ERASE_JOB)


@pytest.mark.parametrize(
    ("key", "challenge", "reason", "state"),
    [
        (None, 5, Reason.DONE, JobState.HALTED),
        (None, 5, Reason.DONE, JobState.RUNNING),
        (None, 5, Reason.DONE, JobState.FORMING),
        (0, 5, Reason.KEY, JobState.HALTED),
        (None, 4, Reason.CHALLENGE, JobState.HALTED),
    ],
)
def test_a_resume_by_key_lets_a_halted_job_go_on_and_changes_nothing_else(key, challenge, reason, state):
    bench, client = joined()
    bench.jobs[1] |= {"challenge": 5, "state": state}
    before = dict(bench.entries[1][1])
    assert answer(bench, client, client.resume(key, challenge))[:2] == (reason, FollowUp.NONE)
    resumed = state == JobState.HALTED and reason == Reason.DONE
    assert (bench.jobs[1]["state"], bench.jobs[1]["challenge"]) == ((JobState.RUNNING, 6) if resumed else (state, 5))
    assert bench.entries[1][1] == before


def test_a_repeat_is_done_again_without_effect():
    bench, client = joined()
    bench.entries[1][1]["number"] = 5
    assert answer(bench, client, client.set_h(2, seq=5)).reason == Reason.DONE
    assert bench.jobs[1]["threshold"] == 3
    assert answer(bench, client, client.set_h(2, seq=4)).reason == Reason.NUMBER


def test_every_action_but_join_and_read_is_a_command():
    assert set(COMMANDS) == set(Action) - {Action.JOIN, Action.READ}


def check_unknown_action(part):
    """An action that is no command changes nothing, whatever number it has."""
    bench, client = joined(part)
    before = dict(bench.jobs[1]), dict(bench.entries[1][1])
    for action in (0, Action.JOIN, Action.READ):
        outcome = answer(bench, client, client.set_h(2), action=action)
        assert outcome[:2] == (Reason.ACTION, FollowUp.NONE)
    assert (bench.jobs[1], bench.entries[1][1]) == before


def test_an_action_without_a_case_is_refused():
    check_unknown_action(Command)


@pytest.mark.mutant
def test_a_default_that_resets_the_job_is_noticed():
    sound, wrong = "with m.Default(): refuse(Reason.ACTION)", "with m.Default(): follow(FollowUp.EMPTY_RING)"
    changed = mutant(hw.decide.membership.command, sound, wrong).Command
    with pytest.raises(AssertionError):
        check_unknown_action(changed)


def test_in_a_tree_a_leaf_refuses_what_belongs_to_the_root():
    config = dataclasses.replace(CONFIG, uplinks=True)
    for frame, reason in (("halt", Reason.ACTION), ("fbcast", Reason.ACTION)):
        bench, client = joined(config=config)
        made = client.fbcast(0) if frame == "fbcast" else getattr(client, frame)()
        assert answer(bench, client, made, is_leaf=1).reason == reason
    bench, client = joined(config=config)
    assert answer(bench, client, client.set_h(2), is_leaf=1).reason == Reason.THRESHOLD


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FORMING])
def test_a_reset_at_a_leaf_makes_the_job_form_and_the_leaf_another_member_to_its_parent(state):
    bench, client = joined(config=dataclasses.replace(CONFIG, uplinks=True))
    bench.jobs[1] |= {"state": state, "epoch": 7, "up_nonce": 0x5FFFF, "up_reason": Reason.MEMBER, "challenge": 3}
    outcome = answer(bench, client, client.reset(epoch=7), is_leaf=1)
    job, runs = bench.jobs[1], state == JobState.RUNNING
    assert (outcome.reason, outcome.follow_up) == (Reason.DONE, FollowUp.EMPTY_RING)
    assert (job["state"], job["epoch"], job["renewed"], job["challenge"]) == (JobState.FORMING, 7, 0, 4)
    assert (job["up_nonce"], job["up_reason"]) == ((0x50000, Reason.DONE) if runs else (0x5FFFF, Reason.MEMBER))

"""What a worker whose Join was refused reads."""

import pytest

from iswitch.control.client import JobRunningError
from iswitch.control.inspection import JobView, MemberView
from iswitch.control.refusal_message import refusal_message
from iswitch.driver.membership import Membership
from iswitch.errors import RefusedError
from iswitch.wire import NO_MEMBER, Format, JobState, MemberState, Mode, Reason


def job(state=JobState.RUNNING, **changes):
    view = JobView(0, state, Format.WINDOW64, 44, 1, 352, 2, 2, [0, 1], [], 0, 0, 5_000_000)
    return view._replace(**changes)


def member(rank, silent_s=0.5):
    return MemberView(rank, MemberState.LIVE, rank, f"10.0.0.{rank}:4000", "02:00:00:00:00:00", silent_s)


def message(reason, view=None, *, wanted=NO_MEMBER, key=0, alive=(), blocking=(0,), members=None, **settings):
    view = job() if view is None else view
    request = Membership(
        job=0,
        key=key,
        world=settings.get("world", 2),
        threshold=2,
        format=settings.get("format", Format.WINDOW64),
        fraction=44,
        elements=352,
        mode=Mode.QUARANTINE,
        nonce=1,
        token=7,
        job_token=8,
        wanted=wanted,
        evict_us=settings.get("evict_us", 5_000_000),
        staleness=settings.get("staleness", 0),
        segments=settings.get("segments", 0),
    )
    refusal = settings.get("refusal") or RefusedError("refused", reason)
    members = {rank: member(rank) for rank in range(2)} if members is None else members
    return refusal_message(
        view, refusal, request, "10.0.0.9:26963", members=members, blocking=list(blocking), alive=alive
    )


def test_a_taken_rank_is_named_with_its_live_owner():
    text = message(Reason.MEMBER, wanted=0, alive={0})
    assert "rank 0 is taken. To go on, give every program a `job` number of its own, and every worker a rank" in text
    assert "Rank 0 (10.0.0.0:4000, behind port 0 of the switch) gave its last sign of life 0.5 s ago and is" in text
    assert text.endswith("`iswitch end-job --job 0 --key 0 --switch 10.0.0.9:26963` ends the job")


RESTARTED = "To go on, if this worker was killed and starts again, pass elastic=True"
MANY_PROGRAMS = "To go on, give every program a `job` number of its own"
RUNNING = JobRunningError("running", Reason.MEMBER)
BOTH, FIRST, SECOND_DEAD = {0: member(0), 1: member(1)}, {0: member(0)}, {0: member(0), 1: member(1, 4.0)}


@pytest.mark.parametrize(
    ("members", "wanted", "refusal", "remedy"),
    [
        (SECOND_DEAD, 1, RUNNING, "rank 1 is taken. " + RESTARTED),
        (SECOND_DEAD, 0, RUNNING, "rank 0 is taken. " + MANY_PROGRAMS),
        (SECOND_DEAD, NO_MEMBER, RUNNING, "the job is running already. " + RESTARTED),
        (FIRST, 1, RUNNING, "the job is running already. " + RESTARTED),
        (BOTH, NO_MEMBER, None, "all ranks are taken. " + MANY_PROGRAMS),
    ],
)
def test_the_remedy_for_the_most_likely_case_comes_first(members, wanted, refusal, remedy):
    """A rank that is free or has a silent owner is most likely that of this worker before it was started again."""
    assert remedy in message(Reason.MEMBER, wanted=wanted, members=members, refusal=refusal, alive={0})


@pytest.mark.parametrize(("state", "first"), [(JobState.FORMING, "`key=`"), (JobState.RUNNING, "another job number")])
def test_a_job_that_forms_most_likely_waits_for_a_worker_with_the_right_key(state, first):
    remedies = message(Reason.KEY, job(state)).partition("To go on, ")[2]
    assert remedies.index(first) == min(remedies.index(each) for each in ("`key=`", "another job number"))


@pytest.mark.parametrize(
    ("reason", "settings", "difference"),
    [
        (Reason.WORLD, {"world": 3}, "this worker's `world` is 3, and the job's is 2"),
        (Reason.FORMAT, {"format": Format.FP32}, 'this worker\'s `format` is "fp32", and the job\'s is "window64"'),
        (Reason.STALENESS, {"staleness": 3}, "this worker's `staleness` is 3, and the job's is 0"),
        (Reason.EVICT, {"evict_us": 250_000}, "this worker's `evict_s` is 0.25, and the job's is 5"),
    ],
)
def test_a_difference_names_both_values(reason, settings, difference):
    assert difference in message(reason, **settings)


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        (0, 3, "this worker is a Worker, and the job is one of AsyncWorkers. "),
        (3, 0, "this worker is an AsyncWorker, and the job is one of Workers. "),
        (3, 4, "an update of this worker has 3 segments, and one of the job has 4 (another `size`). "),
    ],
)
def test_a_difference_in_segments_names_the_kinds_of_jobs(ours, theirs, difference):
    assert difference in message(Reason.SEGMENTS, job(segments=theirs), segments=ours)


def test_the_command_contains_the_key_or_says_how_to_get_it():
    assert "end-job --job 0 --key 7 --switch" in message(Reason.WORLD, key=7, world=3)
    text = message(Reason.KEY, key=7)
    assert "end-job --job 0 --key KEY --switch" in text
    assert text.endswith(", where KEY is the key of its workers")


def test_a_silent_member_is_shown_with_what_happens_to_it():
    assert "; it loses its rank after 5 s (`evict_s`)" in message(Reason.KEY)
    assert "; it keeps its rank, because the job's `evict_s` is 0" in message(Reason.KEY, job(evict_us=0))


def test_a_member_that_left_is_named():
    assert "Rank 5 has left meanwhile" in message(Reason.KEY, blocking=[5])

"""The body of an acknowledgement, alone."""

import pytest
from amaranth.hdl import Value

from hw.decide.membership.acknowledgement import Acknowledgement
from hw.interface.rows import job_row, member_row
from iswitch.config import Config
from iswitch.wire import Action, JobState, MemberState, Reason
from sim.bench.stream import Bench, pack

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)
JOB = {"state": JobState.RUNNING, "elements": 8, "world": 2, "live": 0b011, "first_seq": 40, "threshold": 2}


def body(action=Action.JOIN, reason=Reason.DONE, member=1, job=JOB, entry=None, acknowledged=(1, 2, 3), **request):
    part, found = Acknowledgement(CONFIG), {}

    async def bench(ctx):
        known = {"action": action, "job_in_range": 1} | request
        for port, item in (
            (part.request, pack(part.request.shape(), known)),
            (part.job_row, pack(job_row(CONFIG), job)),
            (part.member_row, pack(member_row(CONFIG), entry or {"live": 1})),
            (part.acknowledged, sum(value << 32 * k for k, value in enumerate(acknowledged))),
            (part.member, member),
            (part.reason, reason),
        ):
            ctx.set(Value.cast(port), item)
        for name in ("reason", "state", "standing", "window", "elements", "world", "live", "first_seq", "threshold"):
            found[name] = ctx.get(part.body[name])

    Bench(part).drive(bench)
    return found


def test_a_member_hears_about_its_job():
    assert body() == {
        "reason": Reason.DONE,
        "state": JobState.RUNNING,
        "standing": MemberState.LIVE,
        "window": CONFIG.window,
        "elements": 8,
        "world": 2,
        "live": 2,
        "first_seq": 40,
        "threshold": 2,
    }


def test_without_a_job_it_says_what_the_switch_can_do():
    answer = body(reason=Reason.JOB, job={})
    assert (answer["elements"], answer["state"], answer["world"]) == (CONFIG.elements, JobState.NONE, 0)


@pytest.mark.parametrize(
    ("member", "entry", "standing"), [(1, {"live": 1}, MemberState.LIVE), (2, {"live": 1}, MemberState.JOINING)]
)
def test_a_granted_join_has_a_standing(member, entry, standing):
    assert body(member=member, entry=entry)["standing"] == standing
    assert body(member=member, entry=entry, reason=Reason.TOKEN)["standing"] == MemberState.NONE
    assert body(member=member, entry=entry, action=Action.SET_H)["standing"] == MemberState.NONE


def test_an_admitted_member_hears_its_own_first_seq():
    job = JOB | {"admitted": 0b010, "admitted_seq": 48}
    assert [body(member=member, job=job)["first_seq"] for member in (0, 1)] == [40, 48]


def test_in_an_asynchronous_job_a_live_member_hears_what_it_lacks():
    assert body(member=1, job=JOB | {"segments": 2})["first_seq"] == 2


@pytest.mark.parametrize(("reason", "said"), [(Reason.DONE, Reason.WORLD), (Reason.TOKEN, Reason.TOKEN)])
def test_a_leaf_hands_on_what_its_parent_refused(reason, said):
    assert body(reason=reason, job=JOB | {"up_reason": Reason.WORLD}, is_leaf=1)["reason"] == said

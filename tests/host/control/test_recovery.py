"""The decisions of a recovery, without a switch. `tests/sim/emulator/test_recovery.py` runs them at an emulated one."""

from dataclasses import replace

import pytest

from iswitch import JobResetError, NotAMemberError, RefusedError, SwitchUnreachableError
from iswitch.control.recovery import Recovery
from iswitch.driver.activity import ActivityMeter
from iswitch.driver.membership import Membership
from iswitch.driver.notices import MembershipRejectedError
from iswitch.wire import Format, Mode, Reason

MEMBERSHIP = Membership(
    job=1, key=5, world=2, threshold=2, format=Format.FP32, fraction=0, elements=4, mode=Mode.QUARANTINE,
    nonce=1, wanted=0, member=0, token=77, job_token=88, epoch=9, window=4,
)  # fmt: skip
NEXT_EPOCH = replace(MEMBERSHIP, epoch=10)


class Ring:
    """Records its restarts."""

    def __init__(self):
        self.membership, self.restarts, self.activity = MEMBERSHIP, [], ActivityMeter(0.0)

    def restart(self, membership):
        self.membership = membership
        self.restarts.append(membership)


class Control:
    """A control client and its transport; each answer is a value to return or an error to raise."""

    def __init__(self, **answers):
        self.answers, self.calls, self.time, self.transport = answers, [], 0.0, self

    def _answer(self, name):
        self.calls.append(name)
        answer = self.answers[name]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def renew(self, membership):
        return self._answer("renew")

    def reset(self, membership):
        return self._answer("reset")

    def read(self, address, *, timeout_s):
        self.time += timeout_s / 2
        return self._answer("read")

    def reopen(self):
        self.calls.append("reopen")

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


def recovery_with(*, member=True, failure=None, **answers):
    made = Recovery(Control(**answers), Ring(), state={"member": member}, job_name="job 1 at here")
    made.failure = failure
    return made


def test_a_rejection_of_an_earlier_epoch_is_void():
    recovery = recovery_with(renew=MEMBERSHIP)
    recovery.confirm(MembershipRejectedError(Reason.EPOCH))
    assert not recovery.ring.restarts and not recovery.needs_sync and not recovery.querying


def test_a_reset_of_another_worker_restarts_the_ring_in_the_new_epoch():
    recovery = recovery_with(renew=NEXT_EPOCH)
    with pytest.raises(MembershipRejectedError) as caught:
        recovery.confirm(MembershipRejectedError(Reason.EPOCH))
    with pytest.raises(JobResetError, match=r"another worker has reset job 1 at here.*call `sync_state`"):
        recovery.raise_rejected(caught.value.reason)
    assert recovery.ring.restarts == [NEXT_EPOCH] and recovery.needs_sync and not recovery.failure


@pytest.mark.parametrize("reason", [Reason.JOB, Reason.MEMBER, Reason.TOKEN])
def test_other_rejections_end_the_membership(reason):
    recovery = recovery_with()
    with pytest.raises(MembershipRejectedError):
        recovery.confirm(MembershipRejectedError(reason))
    with pytest.raises(NotAMemberError, match=rf"\(reason {reason.name}\).* call `rejoin`"):
        recovery.raise_rejected(reason)
    assert recovery.failure and recovery._state == {"member": False}


def test_rejoin_resets_the_job_if_the_worker_is_a_member():
    recovery = recovery_with(failure="it failed", read=None, renew=MEMBERSHIP, reset=NEXT_EPOCH)
    recovery.rejoin(lambda seconds: pytest.fail("joined"), timeout_s=5)
    assert recovery.control.calls == ["reopen", "read", "renew", "reset"]
    assert recovery.ring.restarts == [NEXT_EPOCH] and recovery.needs_sync and not recovery.failure


def test_rejoin_follows_the_reset_of_another_worker():
    """Its `renew` or the refusal of its own reset shows the new epoch."""
    first = recovery_with(failure="it failed", read=None, renew=NEXT_EPOCH)
    late = recovery_with(
        failure="it failed", read=None, renew=[MEMBERSHIP, NEXT_EPOCH], reset=RefusedError("late", Reason.EPOCH)
    )
    for recovery in (first, late):
        recovery.rejoin(lambda seconds: pytest.fail("joined"), timeout_s=5)
        assert recovery.ring.restarts == [NEXT_EPOCH]


def test_rejoin_joins_again_if_the_switch_does_not_know_the_worker():
    recovery = recovery_with(failure="it failed", read=None, renew=NotAMemberError("gone"))
    recovery.rejoin(lambda seconds: replace(MEMBERSHIP, token=78), timeout_s=5)
    assert recovery.ring.membership.token == 78 and recovery._state == {"member": True} and not recovery.failure


def test_rejoin_waits_for_the_switch_and_names_its_time_limit():
    silent = SwitchUnreachableError("no answer")
    recovery = recovery_with(member=False, failure="it failed", read=[silent, silent, None])
    recovery.rejoin(lambda seconds: MEMBERSHIP, timeout_s=60)
    assert recovery.control.calls == ["reopen", "read"] * 3
    recovery = recovery_with(failure="it failed", read=SwitchUnreachableError("no answer"))
    with pytest.raises(SwitchUnreachableError, match=r"no answer.*`timeout_s` of 2 s"):
        recovery.rejoin(lambda seconds: MEMBERSHIP, timeout_s=2)
    assert recovery.failure == "it failed"


def test_without_a_failure_rejoin_asks_nothing():
    recovery = recovery_with()
    recovery.rejoin(lambda seconds: pytest.fail("joined"), timeout_s=5)
    assert not recovery.control.calls and not recovery.ring.restarts

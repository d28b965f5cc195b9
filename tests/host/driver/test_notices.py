import numpy as np
import pytest

from iswitch.driver.membership import Membership
from iswitch.driver.notices import MembershipRejectedError, handle_notice
from iswitch.wire import HEADER, Format, Mode, Reason, Type, version_type

MEMBERSHIP = Membership(
    job=3, key=0, world=2, threshold=2, format=Format.FP32, fraction=0, elements=4, mode=Mode.QUARANTINE,
    nonce=1, wanted=0, member=0, token=77, job_token=88, epoch=9, window=4,
)  # fmt: skip


def notice(reason, **fields):
    header = np.zeros(1, HEADER)[0]
    for name, value in (
        {"version_type": version_type(Type.NOTICE), "job": 3, "token": 77, "epoch": 9, "count": reason} | fields
    ).items():
        header[name] = value
    return header


@pytest.mark.parametrize("reason", [Reason.JOB, Reason.MEMBER, Reason.TOKEN])
def test_a_rejection_raises_its_reason(reason):
    with pytest.raises(MembershipRejectedError) as caught:
        handle_notice(notice(reason), MEMBERSHIP)
    assert caught.value.reason == reason


def test_a_notice_about_the_present_epoch_is_void():
    assert not handle_notice(notice(Reason.EPOCH), MEMBERSHIP)
    with pytest.raises(MembershipRejectedError):
        handle_notice(notice(Reason.EPOCH, epoch=10), MEMBERSHIP)


def test_a_halted_job_is_reported():
    assert handle_notice(notice(Reason.HALTED), MEMBERSHIP)


@pytest.mark.parametrize("other", [{"version_type": version_type(Type.ACK)}, {"job": 4}, {"token": 78}])
def test_frames_of_others_are_ignored(other):
    assert not handle_notice(notice(Reason.MEMBER, **other), MEMBERSHIP)

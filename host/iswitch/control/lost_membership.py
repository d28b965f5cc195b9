"""The error of a worker that is no longer a member of its job."""

from typing import Protocol

from iswitch.driver.activity import ActivityMeter
from iswitch.driver.membership import Membership
from iswitch.errors import NotAMemberError
from iswitch.wire import Reason

__all__ = ["Member", "lost_membership_error"]


class Member(Protocol):
    """A ring or stream that records its membership, and how long it sent nothing."""

    activity: ActivityMeter

    @property
    def membership(self) -> Membership: ...


def lost_membership_error(member: Member, job_name: str, reason: Reason, remedy: str) -> NotAMemberError:
    """Return the error with the most probable cause.

    Parameters
    ----------
    member : Member
        The worker's ring or stream.
    job_name : str
        The job's name in messages.
    reason : Reason
        The reason of the switch.
    remedy : str
        What the program can do, an imperative clause.
    """
    stopped_s, evict_s = member.activity.longest_s, member.membership.evict_us / 1e6
    if evict_s and stopped_s > evict_s:
        return NotAMemberError(
            f"the switch evicted this worker from {job_name}, because its process sent nothing for "
            f"{stopped_s:.1f} s, longer than `evict_s` of {evict_s:g} s: native code held the interpreter's lock, "
            "or the process was stopped. Raise `evict_s`, or release the lock in that code (`nogil`, "
            f"`Py_BEGIN_ALLOW_THREADS`). To go on, {remedy}"
        )
    return NotAMemberError(
        f"this worker is no longer a member of {job_name} (reason {reason.name}). Possible causes: "
        "`iswitch end-job` ended the "
        "job, the switch restarted, or the switch evicted this worker after `evict_s` of silence. To go "
        f"on, {remedy}"
    )

"""NOTICE frames: the switch rejects a frame of a member, or reports that the job is halted."""

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.wire import Collective, Reason, Type, version_type

__all__ = ["CollectiveConflictError", "MembershipRejectedError", "handle_notice"]

_NOTICE = version_type(Type.NOTICE)
_REJECTIONS = {Reason.JOB, Reason.EPOCH, Reason.MEMBER, Reason.TOKEN, Reason.PORT, Reason.ADDRESS}


class MembershipRejectedError(Exception):
    """The switch has no record of this member, or the job is in another epoch.

    The driver raises this error within the package only: a worker turns it into NotAMemberError or JobResetError.

    Parameters
    ----------
    reason : Reason
        JOB, EPOCH, MEMBER or TOKEN; PORT or ADDRESS if the switch knows the member at another place.
    """

    def __init__(self, reason: Reason):
        super().__init__(reason.name)
        self.reason = reason

    @property
    def moved(self) -> bool:
        """True if the switch knows the member at another port or address. A Join from here binds the member to this
        place."""
        return self.reason in (Reason.PORT, Reason.ADDRESS)


class CollectiveConflictError(Exception):
    """Another member has contributed to a segment of another collective, or has applied other results.

    The driver raises this error within the package only: a worker turns it into MismatchError or DivergedError.

    Parameters
    ----------
    seq : int
        The segment.
    theirs : Collective
        The other member's collective. If that is this member's own, the results that they have applied differ.
    """

    def __init__(self, seq: int, theirs: Collective):
        super().__init__(str(theirs))
        self.seq, self.theirs = seq, theirs


def handle_notice(header: np.void, membership: Membership) -> bool:
    """Handle a frame that may be a notice to this member.

    Parameters
    ----------
    header : numpy.void
        `iswitch.wire.HEADER`: the header of a frame that is not a result.
    membership : Membership
        The member that has received the frame.

    Returns
    -------
    bool
        True if the switch reports that the job is halted.

    Raises
    ------
    MembershipRejectedError
        If the switch rejects this member. A notice about the member's own epoch is void.
    CollectiveConflictError
        If the switch has refused to add contributions of different collectives.
    """
    if (header["version_type"], header["job"], header["token"]) != (_NOTICE, membership.job, membership.token):
        return False
    reason = int(header["count"])
    if reason in _REJECTIONS and (reason != Reason.EPOCH or header["epoch"] != membership.epoch):
        raise MembershipRejectedError(Reason(reason))
    if reason == Reason.COLLECTIVE and header["epoch"] == membership.epoch:
        raise CollectiveConflictError(int(header["seq"]), Collective.from_word(int(header["members"])))
    return reason == Reason.HALTED

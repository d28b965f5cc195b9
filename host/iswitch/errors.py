"""What can go wrong between a worker and its switch. Each message says what happened, in whose hand it is, and what
helps."""

from typing import Any

from iswitch.wire import Reason

__all__ = [
    "AbandonedJobWarning",
    "DivergedError",
    "HaltedWarning",
    "IswitchError",
    "JobResetError",
    "MembershipChangedError",
    "MismatchError",
    "MissingWarning",
    "NoContributionError",
    "NotAMemberError",
    "RecoverableError",
    "RefusedError",
    "SwitchUnreachableError",
    "TaintWarning",
    "TaintedError",
    "CollectiveTimeoutError",
]


class IswitchError(Exception):
    """Every error of this package that is not a plain mistake in an argument (those are ValueError and TypeError)."""


class RecoverableError(IswitchError):
    """A collective ended without its result, and the program can go on: call `Worker.rejoin`, then `Worker.sync_state`. Base
    class of SwitchUnreachableError, JobResetError, NotAMemberError, CollectiveTimeoutError and MembershipChangedError.
    The array that was being reduced may hold partly own elements and partly sums: compute it again."""


class SwitchUnreachableError(RecoverableError, ConnectionError):
    """The switch does not answer. `Worker.rejoin(timeout_s=...)` waits until the switch answers again."""


class RefusedError(IswitchError):
    """The switch refused a control message; `reason` says which rule the message broke."""

    def __init__(self, message: str, reason: Reason):
        super().__init__(message)
        self.reason = reason


class JobResetError(RecoverableError):
    """Another member reset the job. The next collective must be `sync_state`, which brings all members to the same step."""


class NotAMemberError(RecoverableError):
    """The switch does not know this worker: the worker left or was evicted, the job was ended, or the switch restarted.
    To go on, call `rejoin`, then `sync_state`; or make a new Worker."""


class CollectiveTimeoutError(RecoverableError, TimeoutError):
    """A collective made no progress for `timeout_s`, or the workers of a job were not complete within `join_timeout_s`.

    counters: the switch's drop counters that rose since this worker joined, by name; empty if the worker has not
    joined.
    """

    def __init__(self, message: str, counters: dict[str, int] | None = None):
        super().__init__(message)
        self.counters = counters or {}


class MembershipChangedError(RecoverableError):
    """The next collective must be `sync_state`: new members wait for the state, or the job began again. Nothing was sent."""


class MismatchError(IswitchError):
    """The members of a job do not call the same collective: sizes or number formats differ. This is a mistake in the
    program."""


class DivergedError(IswitchError):
    """The workers of an asynchronous job did not receive the same updates, so their weights are no longer equal."""


class NoContributionError(IswitchError):
    """A result holds no worker's numbers because all were quarantined, or the root of a broadcast has left."""


class TaintedError(IswitchError):
    """A contribution held NaN, an infinity or a number out of range, and the worker was made with on_taint="raise".

    result: the `Reduction` of a Worker, whose array is in place, or the `Update` of an AsyncWorker. The worker is in
    step with the others.
    """

    def __init__(self, message: str, result: Any = None):
        super().__init__(message)
        self.result = result


class TaintWarning(UserWarning):
    """A contribution held NaN, an infinity or a number out of range."""


class HaltedWarning(UserWarning):
    """A member has halted the job; a collective waits until a member resumes the job."""


class MissingWarning(UserWarning):
    """A sum lacks workers, although all were expected: they have left or were evicted, or the threshold was lowered."""


class AbandonedJobWarning(UserWarning):
    """This worker ended a job whose members were all dead, because that job was in the way of its own."""

"""The errors and warnings of iswitch. Each message names the cause, the side that is responsible, and a remedy."""

from typing import Any

from iswitch.wire import Reason

__all__ = [
    "AbandonedJobWarning",
    "ClosedError",
    "CollectiveTimeoutError",
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
]


def _restored(kind: type["IswitchError"], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> "IswitchError":
    """Return a pickled error. Its `__init__` may need more arguments than the message."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class IswitchError(Exception):
    """Base class of the errors of this package. A wrong argument raises ValueError or TypeError instead.

    Errors can be pickled, so they come out of other processes as they were raised there.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


class ClosedError(IswitchError):
    """This process has closed the worker or the replay client, or the replay client belongs to the process that forked
    this one. No call of it is possible here any more: make a new one.

    If another thread is in a call at that moment, the call raises this error as soon as its present wait for a frame
    ends. The array of a collective may then contain own elements in one part and sums in the other.
    """


class RecoverableError(IswitchError):
    """A collective ended without its result, and the program can go on: call `Worker.rejoin`, then `Worker.sync_state`.

    Base class of SwitchUnreachableError, JobResetError, NotAMemberError, CollectiveTimeoutError and
    MembershipChangedError. The array of the collective may contain own elements in one part and sums in the other, so
    compute it again.

    If `Worker(...)` itself raises such an error, there is no worker yet: make a new Worker. An AsyncWorker has no
    `rejoin`; see each subclass for its remedy.
    """


class SwitchUnreachableError(RecoverableError, ConnectionError):
    """The switch does not answer.

    `Worker.rejoin(timeout_s=...)` waits until the switch answers again. If `Worker(...)` or `AsyncWorker(...)` raised
    the error, make a new worker when the switch can be reached. A method of an AsyncWorker can be called again.
    """


class RefusedError(IswitchError):
    """The switch refused a control message.

    Parameters
    ----------
    message : str
        The refusal, with a remedy.
    reason : Reason
        The rule that the control message broke.
    """

    def __init__(self, message: str, reason: Reason):
        super().__init__(message)
        self.reason = reason


class JobResetError(RecoverableError):
    """Another member reset the job.

    The next collective of a Worker must be `sync_state`, which brings all workers to the same step. An AsyncWorker
    cannot go on: close it, and begin again with a new one from saved weights.
    """


class NotAMemberError(RecoverableError):
    """The switch has no record of this worker: the worker left or was evicted, the job was ended, or the switch
    restarted.

    A Worker calls `rejoin`, then `sync_state`. In place of an AsyncWorker, make a new one with elastic=True.
    """


class CollectiveTimeoutError(RecoverableError, TimeoutError):
    """A collective made no progress for `timeout_s`, or some workers did not join within `join_timeout_s`.

    If `Worker(...)` or `AsyncWorker(...)` raised the error, make a new worker. A method of an AsyncWorker can be called
    again.

    Parameters
    ----------
    message : str
        The most likely cause, with a remedy.
    counters : dict of str to int, optional
        By name, how much the switch's counters of drops and unusual events have risen since this worker joined. Empty
        if the worker has not joined.
    """

    def __init__(self, message: str, counters: dict[str, int] | None = None):
        super().__init__(message)
        self.counters = counters or {}


class MembershipChangedError(RecoverableError):
    """The next collective must be `sync_state`: joining workers need the state, or the job was reset. Nothing was
    sent."""


class MismatchError(IswitchError):
    """The workers of a job do not call the same collective: their steps, kinds, sizes or number formats differ.

    Nothing was added. If the workers are at different steps, call `Worker.rejoin`, then `Worker.sync_state`, on all of
    them. Otherwise the program is wrong: correct it, and start all workers again.
    """


class DivergedError(IswitchError):
    """The workers of a job have applied different results, so their weights differ.

    With a Worker, call `rejoin`, then `sync_state`, on all workers. With an AsyncWorker, begin again from saved
    weights.
    """


class NoContributionError(IswitchError):
    """A result contains no worker's elements, because all were quarantined, or the root of a broadcast has left."""


class TaintedError(IswitchError):
    """A contribution held NaN, an infinity or an element out of range, and `on_taint` is "raise".

    The worker needs no recovery: a program can catch this error and go on.

    Parameters
    ----------
    message : str
        The ranks that sent such elements, with a remedy.
    result : Reduction or Update
        The result of a Worker's collective, whose array is in place, or the update of an AsyncWorker.
    """

    def __init__(self, message: str, result: Any = None):
        super().__init__(message)
        self.result = result


class TaintWarning(UserWarning):
    """A contribution held NaN, an infinity or an element out of range, and `on_taint` is "warn"."""


class HaltedWarning(UserWarning):
    """The job is halted: a call that waits for results waits until a worker of the job calls `resume`, or an operator
    runs `iswitch resume`."""


class MissingWarning(UserWarning):
    """A sum lacks workers that were expected: they have left, were evicted, or the threshold was lowered.

    `Reduction.absent` names their ranks.
    """


class AbandonedJobWarning(UserWarning):
    """The members of a job were all dead. The switch ends that job, because this worker needs its number."""

"""What can go wrong between a worker and its switch; every message says what happened and what to do about it."""

from iswitch.wire import Reason

__all__ = ["Diverged", "HaltedWarning", "IswitchError", "JobReset", "MembershipChanged", "Mismatch", "MissingWarning", "NoContributionError",
           "NotAMember", "Refused", "SwitchUnreachable", "TaintWarning", "TaintedError", "Timeout"]


class IswitchError(Exception):
    """Every error of this package that is not a plain mistake in an argument (those are ValueError and TypeError)."""


class SwitchUnreachable(IswitchError, ConnectionError):
    """Nothing answered at the switch's address."""


class Refused(IswitchError):
    """The switch answered a control message with a refusal; `reason` says which rule it broke."""

    def __init__(self, message: str, reason: Reason):
        super().__init__(message)
        self.reason = reason


class JobReset(IswitchError):
    """Another member reset the job. The worker is ready for the first collective of the new epoch; what was under way
    is lost, and the array that was being reduced holds a mixture of own numbers and sums: do the collective again, from a copy."""


class NotAMember(IswitchError):
    """The switch no longer knows this worker: it left, was silent for too long, the job was ended, or the switch restarted. To go on:
    `rejoin`, then `share`; or make a new Worker."""


class Timeout(IswitchError, TimeoutError):
    """A collective, or the gathering of a job's workers, made no progress for the time allowed.

    counters: the switch's drop counters that rose since this worker joined, by name; empty if it has not joined.
    """

    def __init__(self, message: str, counters: dict[str, int] | None = None):
        super().__init__(message)
        self.counters = counters or {}


class Mismatch(IswitchError):
    """The members of a job are not performing the same collective: sizes or number formats differ."""


class Diverged(IswitchError):
    """The workers of an asynchronous job were not given the same updates, so their weights are no longer equal."""


class NoContributionError(IswitchError):
    """A result has nobody's numbers in it (all were quarantined), or a broadcast lacks its root."""


class TaintedError(IswitchError):
    """A contribution held NaN, an infinity or a number out of range, and the worker was made with on_taint="raise"."""


class TaintWarning(UserWarning):
    """A contribution held NaN, an infinity or a number out of range."""


class MembershipChanged(IswitchError):
    """Newcomers were let into the job, and wait for its state: the next collective must be `share`. Nothing was sent."""


class HaltedWarning(UserWarning):
    """A member has halted the job; a collective waits until one lets it go on."""


class MissingWarning(UserWarning):
    """A sum lacks workers, although all were to contribute: they have left the job, or its threshold was lowered."""

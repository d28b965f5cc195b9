"""iswitch: gradient sums inside an FPGA network switch."""

from iswitch.async_worker import AsyncWorker
from iswitch.distribution import __version__
from iswitch.errors import (
    AbandonedJobWarning,
    CollectiveTimeoutError,
    DivergedError,
    HaltedWarning,
    IswitchError,
    JobResetError,
    MembershipChangedError,
    MismatchError,
    MissingWarning,
    NoContributionError,
    NotAMemberError,
    RecoverableError,
    RefusedError,
    SwitchUnreachableError,
    TaintedError,
    TaintWarning,
)
from iswitch.results import Reduction, Update
from iswitch.worker import Worker

__all__ = [
    "AbandonedJobWarning",
    "AsyncWorker",
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
    "Reduction",
    "RefusedError",
    "SwitchUnreachableError",
    "TaintWarning",
    "TaintedError",
    "CollectiveTimeoutError",
    "Update",
    "Worker",
    "__version__",
]

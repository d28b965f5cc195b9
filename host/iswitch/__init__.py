"""iswitch: gradient sums inside an FPGA network switch."""

from iswitch.worker import Worker
from iswitch.async_worker import AsyncWorker
from iswitch.errors import (
    AbandonedJobWarning,
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
    CollectiveTimeoutError,
)
from iswitch.results import Reduction
from iswitch.driver.update import Update

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

__version__ = "0.1.0"

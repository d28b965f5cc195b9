"""iswitch: gradient sums inside an FPGA network switch."""

from iswitch.worker import Worker
from iswitch.async_worker import AsyncWorker
from iswitch.errors import (
    AbandonedJobWarning,
    Diverged,
    HaltedWarning,
    IswitchError,
    JobReset,
    MembershipChanged,
    Mismatch,
    MissingWarning,
    NoContributionError,
    NotAMember,
    Recoverable,
    Refused,
    SwitchUnreachable,
    TaintedError,
    TaintWarning,
    Timeout,
)
from iswitch.results import Reduction
from iswitch.driver.update import Update

__all__ = [
    "AbandonedJobWarning",
    "AsyncWorker",
    "Diverged",
    "HaltedWarning",
    "IswitchError",
    "JobReset",
    "MembershipChanged",
    "Mismatch",
    "MissingWarning",
    "NoContributionError",
    "NotAMember",
    "Recoverable",
    "Reduction",
    "Refused",
    "SwitchUnreachable",
    "TaintWarning",
    "TaintedError",
    "Timeout",
    "Update",
    "Worker",
    "__version__",
]

__version__ = "0.1.0"

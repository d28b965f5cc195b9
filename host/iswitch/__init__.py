"""iswitch: gradient sums inside an FPGA network switch."""

from iswitch.aggregate import Worker
from iswitch.asynchronous import AsyncWorker
from iswitch.errors import (
    Diverged, HaltedWarning, IswitchError, JobReset, MembershipChanged, Mismatch, MissingWarning, NoContributionError, NotAMember, Refused,
    SwitchUnreachable, TaintedError, TaintWarning, Timeout,
)
from iswitch.reduction import Reduction
from iswitch.update import Update

__all__ = ["AsyncWorker", "Diverged", "HaltedWarning", "IswitchError", "JobReset", "MembershipChanged", "Mismatch", "MissingWarning",
           "NoContributionError", "NotAMember", "Reduction", "Refused", "SwitchUnreachable", "TaintWarning", "TaintedError", "Timeout",
           "Update", "Worker", "__version__"]

__version__ = "0.1.0"

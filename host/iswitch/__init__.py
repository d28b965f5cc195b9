"""iswitch: gradient sums inside an FPGA network switch."""

from iswitch.aggregate import Worker
from iswitch.errors import (
    HaltedWarning, IswitchError, JobReset, MembershipChanged, Mismatch, MissingWarning, NoContributionError, NotAMember, Refused,
    SwitchUnreachable, TaintedError, TaintWarning, Timeout,
)
from iswitch.reduction import Reduction

__all__ = ["HaltedWarning", "IswitchError", "JobReset", "MembershipChanged", "Mismatch", "MissingWarning", "NoContributionError",
           "NotAMember", "Reduction", "Refused", "SwitchUnreachable", "TaintWarning", "TaintedError", "Timeout", "Worker", "__version__"]

__version__ = "0.1.0"

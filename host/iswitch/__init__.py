"""iswitch: gradient sums and prioritized replay in an FPGA network switch.

`Worker` sums arrays over the workers of a job, `AsyncWorker` does so without waiting for the slow ones, and
`iswitch.replay` has the client of the replay service. Packages depend on those before them only:

- `wire`: frames, control messages and registers, each declared once. Beside it `config`, `errors` and `results`.
- `driver`: transports, the ring of a synchronous job, the stream of an asynchronous job.
- `control`: control messages, membership of a job, recovery, state transfer, the switch's counters and tables.
- `worker`, `async_worker`, `replay`: what programs call. `init` makes a `Worker` from the environment.
- `torch`: a backend of `torch.distributed` and a communication hook, with the extra `torch`.
- `metrics`: what a worker counts, for TensorBoard and, with the extra `metrics`, for Prometheus.
- `tools`: the command `iswitch`. `plan` is a planner of its own, which uses none of the others.

The library logs to the logger "iswitch".
"""

import logging

from iswitch.async_worker import AsyncWorker
from iswitch.distribution import __version__
from iswitch.driver.packet import PacketTransport
from iswitch.environment import init
from iswitch.errors import (
    AbandonedJobWarning,
    ClosedError,
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

logging.getLogger("iswitch").addHandler(logging.NullHandler())

__all__ = [
    "AbandonedJobWarning",
    "AsyncWorker",
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
    "PacketTransport",
    "RecoverableError",
    "Reduction",
    "RefusedError",
    "SwitchUnreachableError",
    "TaintWarning",
    "TaintedError",
    "Update",
    "Worker",
    "__version__",
    "init",
]

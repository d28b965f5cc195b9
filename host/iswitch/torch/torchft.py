"""The process group for torchft: its `Manager` makes a group of the replicas that are alive, and the switch sums.

It needs the package `torchft` (the extra `torchft`).
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup, Store
from torchft.process_group import ProcessGroupWrapper

from iswitch.torch.options import Options
from iswitch.torch.process_group import IswitchProcessGroup

__all__ = ["ProcessGroupIswitch"]


class ProcessGroupIswitch(ProcessGroupWrapper):
    """The process group of a `torchft.Manager`, which configures it anew when replicas come or go.

    The replicas of each quorum join a free job of the switch.

    Parameters
    ----------
    options : Options, optional
        Address of the switch, and others. Default: `Options()`. The option `job` is not used.
    timeout : datetime.timedelta
        The longest time without progress in a collective, and for finding the other replicas.
    """

    def __init__(self, options: Options | None = None, *, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(timeout=timeout)
        self._options = options or Options()

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return "torchft-iswitch"

    def shutdown(self) -> None:
        """Leave the job."""
        self.abort(errored=False)

    def _opts_hook(self, opts: Any) -> Any:
        # The `Manager` of torchft 0.2.0 reads a variable of its loop in callbacks of a future. If another thread
        # completes the future during the loop, a callback fails. So a collective is complete when it returns.
        if isinstance(opts, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            operation, opts = opts, dist.AllreduceOptions()
            opts.reduceOp = operation
        if opts is not None:  # a barrier may have none
            opts.asyncOp = False
        return opts

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        return IswitchProcessGroup(store, rank, world_size, self._timeout, self._options, default_group=False)

"""The job of a process group: its number and its key, on which the ranks agree by their store."""

import contextlib
import secrets
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from iswitch.control.client import Control
from iswitch.control.job_worker import switch_address
from iswitch.control.state_transfer import free_job
from iswitch.driver.udp import UdpTransport
from iswitch.errors import IswitchError, RefusedError, SwitchUnreachableError
from iswitch.torch.options import Options
from iswitch.wire import Reason
from iswitch.worker import Worker

__all__ = ["GroupJob"]

_RETURN_S = 15.0
"""The longest wait for the other ranks at a return to the switch, in which all ranks stand still."""
_ATTEMPTS = 5
"""Attempts to find a free job number, beside other groups that look for one at the same time."""


def _agreed_key(store: Any, rank: int, size: int) -> int:
    """Return a random number that rank 0 gives to all ranks.

    A store may outlive the group, as that of torchrun does, and a rank may come to the next group before rank 0 does.
    So each rank has an entry of its own, and deletes it with the reading: the next one waits for a new number.
    """
    if rank == 0:
        key = str(secrets.randbits(63))
        for other in range(1, size):
            store.set(f"key/{other}", key)
        return int(key)
    found = int(store.get(f"key/{rank}"))
    # A store of the program's own may be unable to delete. It serves one group: the next one would read this key again,
    # and the switch would refuse its ranks (KEY). The stores of torch can delete.
    with contextlib.suppress(NotImplementedError):
        store.delete_key(f"key/{rank}")
    return found


class GroupJob:
    """The job of a process group. All ranks make it, and call the same methods.

    Parameters
    ----------
    store : torch.distributed.Store
        The store of the group.
    rank, size : int
        This rank, and the number of ranks.
    timeout : timedelta
        The longest time without progress in a collective.
    options : Options
        Address of the switch, and others.

    Attributes
    ----------
    number : int
        Number of the job: that of the options, until `join_free_job` finds another.
    store : torch.distributed.Store
        A part of the group's store that no earlier group has used.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, options: Options) -> None:
        self._rank, self._size, self._timeout, self._options = rank, size, timeout, options
        self.number = options.job
        self._key = _agreed_key(store, rank, size)
        self.store = dist.PrefixStore(f"group {self._key}", store)

    def join(self, period: int = 0) -> Worker:
        """Join the job.

        Parameters
        ----------
        period : int
            Number of earlier joins of the group. Each has a key of its own, so that no rank meets one that has not yet
            left (see `FallbackReducer`).
        """
        options = self._options
        return Worker(
            options.address,
            world=self._size,
            rank=self._rank,
            job=self.number,
            key=(self._key + period) % 2**64,
            fraction=options.fraction,
            on_taint="ignore",
            timeout_s=self._timeout.total_seconds(),
            switch_timeout_s=options.switch_timeout_s,
            join_timeout_s=options.join_timeout_s if period == 0 else min(options.join_timeout_s, _RETURN_S),
            evict_s=options.evict_s,
        )

    def join_free_job(self) -> Worker:
        """Join a job that no other group has.

        Raises
        ------
        IswitchError
            At all ranks, if rank 0 finds no free job, or no switch.
        """
        for attempt in range(_ATTEMPTS):
            if self._rank == 0:
                self.store.set(f"job/{attempt}", self._find_free_number())
            found = self.store.get(f"job/{attempt}").decode()
            if not found.isdecimal():
                raise IswitchError(found)
            self.number = int(found)
            try:
                return self.join()
            except RefusedError as refusal:  # another group has taken the number meanwhile; no rank of this one joined
                if refusal.reason not in (Reason.KEY, Reason.MEMBER) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _find_free_number(self) -> str:
        """Return a free job number or, if there is none, a sentence that says so."""
        address = switch_address(self._options.address)
        try:
            transport = UdpTransport(address)
        except (IswitchError, OSError) as error:
            return str(error)
        try:
            control = Control(transport, address=address)
            try:
                jobs = control.switch_info().jobs
            except IswitchError as error:  # of another version, for example
                return str(error)
            return str(free_job(control, jobs))
        except SwitchUnreachableError as error:
            return str(error)
        except IswitchError:
            return (
                f"this group needs a job of its own, and all {jobs} jobs of the switch at {address} are in use: "
                "destroy groups that are no longer needed (`torch.distributed.destroy_process_group(group)`), or start "
                "a switch with more (`iswitch switch --jobs 16`; of a board: `jobs` in its Config)"
            )
        finally:
            transport.close()

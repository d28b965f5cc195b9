"""Copies the state of the most advanced worker of a synchronous job to all its workers.

The workers elect the sender by one collective, and copy the state by further ones. If the switch admits a joining
worker meanwhile, or the sender leaves, all workers see it at the same collective and begin again.
"""

from collections.abc import Callable

import numpy as np

from iswitch.control.state_transfer import CANDIDATE, TakesPart, most_advanced
from iswitch.driver.buffers import INT, buffer_octets
from iswitch.driver.progress import Progress
from iswitch.driver.transport import Transport
from iswitch.errors import CollectiveTimeoutError
from iswitch.results import Reduction
from iswitch.wire import CollectiveKind

__all__ = ["StateSync", "Transfer", "bytes_transfer", "vector_transfer"]

_ELECTION_PAUSE_S = 0.05
"""Pause between two elections in which no worker has a state."""

Collect = Callable[[np.ndarray, CollectiveKind], tuple[Reduction, bool]]
"""Sums an int32 vector over all members, in place. Returns the reduction, and True if it admitted joining workers."""
Copy = Callable[[np.ndarray], bool]
"""Replaces an int32 vector by that of the elected worker. Returns False if the workers begin again."""
Transfer = Callable[[bool, Copy], np.ndarray | None]
"""`transfer(sends, copy)` copies a state by one or several calls of `copy`, and returns it, or None as soon as a call
returns False. `sends` is True at the elected worker."""


def vector_transfer(own: np.ndarray) -> Transfer:
    """Return the transfer of an int32 vector, which is equally long on all workers."""

    def transfer(sends: bool, copy: Copy) -> np.ndarray | None:
        values = own.copy()
        return values if copy(values) else None

    return transfer


def bytes_transfer(own: bytes) -> Transfer:
    """Return the transfer of bytes of any length: the length first, in two words of 31 bits."""
    octets = buffer_octets(own)

    def transfer(sends: bool, copy: Copy) -> np.ndarray | None:
        size = np.array([octets.size & 0x7FFFFFFF, octets.size >> 31], INT)
        if not copy(size):
            return None
        length = int(size[0]) | int(size[1]) << 31
        words = np.zeros(-(-length // 4), INT)
        if sends:
            words.view(np.uint8)[:length] = octets
        return words.view(np.uint8)[:length] if not length or copy(words) else None

    return transfer


class StateSync:
    """The election of a sender and the copy of its state, for one worker.

    Parameters
    ----------
    transport : Transport
        Its clock.
    world, rank : int
        Number of workers, and this worker.
    has_state : bool
        False if the worker has joined a running job.
    job_name : str
        The job, for messages.
    """

    def __init__(self, transport: Transport, *, world: int, rank: int, has_state: bool, job_name: str) -> None:
        self._transport = transport
        self._world, self._rank, self.has_state, self._job_name = world, rank, has_state, job_name

    def run(
        self, collect: Collect, step: int, progress: Progress, timeout_s: float, transfer: Transfer
    ) -> tuple[np.ndarray | None, int]:
        """Elect the sender and copy its state.

        Parameters
        ----------
        collect : callable
            Calls a collective of the worker.
        step : int
            Step of this worker's state.
        progress : Progress
            This worker's progress, which becomes that of the sender.
        timeout_s : float
            The longest time without a worker that has a state.
        transfer : callable
            Copies the state.

        Returns
        -------
        state : numpy.ndarray or None
            What `transfer` returned; None at the sender.
        step : int
            Step of the state that all workers have now.

        Raises
        ------
        CollectiveTimeoutError
            If all workers with a state are away for `timeout_s`.
        IswitchError
            As `Worker.allreduce`.
        """
        deadline = self._transport.now() + timeout_s
        while True:
            candidates = np.zeros(self._world, CANDIDATE)
            takes_part = TakesPart.WITH_STATE if self.has_state else TakesPart.WITHOUT_STATE
            candidates[self._rank] = takes_part, step & 0x7FFFFFFF, step >> 31, progress.position, progress.checksum
            _, admitted = collect(candidates.view(INT), CollectiveKind.ELECTION)
            root, highest_step = most_advanced(candidates)
            if root is None:
                self._wait_for_state(deadline, timeout_s)
                continue
            if admitted:  # all workers see the same admission, so all begin again
                continue

            def copy(values: np.ndarray, root: int = root) -> bool:
                if root != self._rank:
                    values[:] = 0
                reduction, joined = collect(values, CollectiveKind.STATE)
                return bool((reduction.member_masks >> np.uint32(root) & 1).all()) and not joined

            state = transfer(root == self._rank, copy)
            if state is not None:
                break
        self.has_state = True
        progress.adopt(int(candidates["position"][root]), int(candidates["checksum"][root]))
        return (None if root == self._rank else state), highest_step

    def _wait_for_state(self, deadline: float, timeout_s: float) -> None:
        """Wait a moment for a worker that has the state of the running job. Raises CollectiveTimeoutError after the
        deadline."""
        if self._transport.now() >= deadline:
            raise CollectiveTimeoutError(
                f"no worker that has the state of {self._job_name} has come back within `timeout_s` of "
                f"{timeout_s:g} s: only workers that joined the running job are left. If the others are gone for "
                "good, end the job with `iswitch end-job`, and start all workers again"
            )
        self._transport.sleep(_ELECTION_PAUSE_S)

"""What a worker calls after each of its collectives, if the program counts them."""

from typing import Protocol

from iswitch.results import Reduction
from iswitch.wire import CollectiveKind

__all__ = ["CollectiveMeter"]


class CollectiveMeter(Protocol):
    """Counts the collectives of one worker. `iswitch.metrics.watch` makes one."""

    def record(self, kind: CollectiveKind, seconds: float, size_bytes: int, reduction: Reduction) -> None:
        """Count a collective that is complete.

        Parameters
        ----------
        kind : CollectiveKind
            What the collective does.
        seconds : float
            Its latency, by the clock of the worker's transport.
        size_bytes : int
            Bytes of its array.
        reduction : Reduction
            Its result.
        """

    def record_error(self, error: Exception) -> None:
        """Count a collective that raised an error before its result was complete."""

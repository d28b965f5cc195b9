"""Batches that are sampled before the program needs them."""

from collections import deque
from collections.abc import Callable
from typing import Self

from iswitch.replay.sampling import Batch, SampleOperation
from iswitch.replay.session import Session

__all__ = ["Prefetch"]


class Prefetch:
    """An endless iterator over batches that keeps `depth` of them in progress.

    No thread works for it: batches make progress whenever the client is called. A SAMPLE that has to wait lets the
    client's other requests pass. The priorities in a batch are as old as its sampling: up to `depth` priority updates
    of the learner come between that and the delivery.

    Parameters
    ----------
    session : Session
        The session.
    begin : callable
        Begins the next batch.
    depth : int
        Number of batches in progress, at least 1.

    Raises
    ------
    ValueError
        If `depth` is below 1.
    """

    def __init__(self, session: Session, begin: Callable[[], SampleOperation], depth: int):
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self._session, self._begin, self.depth = session, begin, depth
        self._operations: deque[SampleOperation] = deque()
        self._closed = False
        self._refill()

    def _refill(self) -> None:
        while len(self._operations) < self.depth and not self._closed:
            self._operations.append(self._begin())
        self._session.poll()

    def advance(self) -> None:
        """Continue all batches as far as possible with what has come."""
        for operation in self._operations:
            operation.advance()

    @property
    def ready(self) -> bool:
        """True if the next batch is here."""
        return bool(self._operations) and self._operations[0].advance()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """Wait for the next batch and return it.

        Raises
        ------
        NotServedError
            If the batch could not be sampled within `wait_s` from this call. The next call returns the batch after it.
        """
        if self._closed:
            raise StopIteration
        first = self._operations[0]
        first.request.deadline = self._session.transport.now() + self._session.wait_s
        self._session.wait_until(lambda: self._first_done(first))
        self._operations.popleft()
        self._refill()
        return first.batch

    def _first_done(self, first: SampleOperation) -> bool:
        self.advance()
        return first.advance()

    def close(self) -> None:
        """Cancel the batches in progress. The switch may have sampled them, and then counts them for the limit on
        samples per insert."""
        self._closed = True
        for operation in self._operations:
            self._session.queries.cancel(operation.queries)
            operation.request.deadline = self._session.transport.now()
        self._operations.clear()

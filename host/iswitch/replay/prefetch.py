"""Batches that are drawn before they are wanted."""

from collections import deque
from collections.abc import Callable
from typing import Self

from iswitch.replay.sampling import Batch, Sampling
from iswitch.replay.session import Session

__all__ = ["Prefetch"]


class Prefetch:
    """An iterator over batches, without an end, that keeps `depth` of them on their way.

    make: puts the next SAMPLE. No thread works for it: batches come nearer whenever the client is called. What waits to
    be drawn lets the client's other requests pass. A batch's priorities are as old as its draw: up to `depth` of the
    learner's updates come after it.
    """

    def __init__(self, session: Session, make: Callable[[], Sampling], depth: int):
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self._session, self._make, self.depth = session, make, depth
        self._ahead: deque[Sampling] = deque()
        self._closed = False
        self._refill()

    def _refill(self) -> None:
        while len(self._ahead) < self.depth and not self._closed:
            self._ahead.append(self._make())
        self._session.pump()

    def advance(self) -> None:
        """Takes what has come for all of them."""
        for sampling in self._ahead:
            sampling.advance()

    @property
    def ready(self) -> bool:
        """The next batch is here."""
        return bool(self._ahead) and self._ahead[0].advance()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """Waits for the next one. NotServedError if it could not be drawn; then the one after it may be asked for."""
        if self._closed:
            raise StopIteration
        first = self._ahead[0]
        first.request.deadline = self._session.transport.now() + self._session.wait_s
        self._session.wait(lambda: self._all(first))
        self._ahead.popleft()
        self._refill()
        return first.batch

    def _all(self, first: Sampling) -> bool:
        self.advance()
        return first.advance()

    def close(self) -> None:
        """Gives up what is on its way; it was drawn, though, or still may be, and counts for a limit's ratio."""
        self._closed = True
        for sampling in self._ahead:
            self._session.inquiries.drop(sampling.inquiries)
            sampling.request.deadline = self._session.transport.now()
        self._ahead.clear()

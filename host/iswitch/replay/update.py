"""Priority updates in flight."""

from collections.abc import Iterator

from iswitch.replay.request import Request
from iswitch.replay.session import Session

__all__ = ["PendingUpdate"]


class PendingUpdate:
    """Priorities that were submitted. Unpacks to (updated, stale), which waits for the answer.

    Attributes
    ----------
    ticket : int
        The table's ticket after the update if it had a ticket, else 0.
    """

    def __init__(self, session: Session, requests: list[Request], ticket: int):
        self._session, self._requests, self.ticket = session, requests, ticket

    def _sum(self, name: str) -> int:
        self._session.wait_served(self._requests)
        return sum(getattr(request.status, name) for request in self._requests)

    @property
    def updated(self) -> int:
        """Number of items that have the new priority. Waits for the answer; raises NotServedError."""
        return self._sum("done")

    @property
    def stale(self) -> int:
        """Number of items that had been overwritten. Waits for the answer; raises NotServedError."""
        return self._sum("stale")

    def __iter__(self) -> Iterator[int]:
        return iter((self.updated, self.stale))

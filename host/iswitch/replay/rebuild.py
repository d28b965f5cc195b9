"""Rebuild a table's sums of priorities after a bit error, while the switch serves."""

from typing import TYPE_CHECKING

import numpy as np

from iswitch.replay.errors import CorruptTableError
from iswitch.replay.request import Request
from iswitch.wire.replay import REBUILD, REBUILD_SLOTS, Kind, ReplayOutcome

if TYPE_CHECKING:
    from iswitch.replay.session import Session

__all__ = ["rebuild_table"]

_ATTEMPTS = 4
"""A rebuild is disturbed by another client that begins one, and by another bit error."""


def rebuild_table(session: "Session") -> int:
    """Rebuild the sums of the session's table from its priorities.

    Parameters
    ----------
    session : Session
        The session.

    Returns
    -------
    int
        Priorities that had a bit error themselves. They are 0 now.

    Raises
    ------
    CorruptTableError
        If the table is still corrupt after some attempts.
    """
    lost = 0
    for _ in range(_ATTEMPTS):
        requests = []
        for slot in range(0, session.config.capacity, REBUILD_SLOTS):
            body = np.zeros(1, REBUILD)
            body["slot"] = slot
            count = min(REBUILD_SLOTS, session.config.capacity - slot)
            requests.append(session.submit(Request(Kind.REBUILD, count=count, body=body.tobytes())))
        session.wait_served(requests)
        lost += sum(
            request.status.stale for request in requests if request.status and request.outcome != ReplayOutcome.RANGE
        )
        if all(request.outcome == ReplayOutcome.DONE for request in requests):
            return lost
    raise CorruptTableError(
        f"table {session.table} at {session.address} is still corrupt after {_ATTEMPTS} attempts to rebuild it: bit "
        "errors occur again, or other clients rebuild it, too. Rebuild it with one client at a time. If that does not "
        "help, replace the board"
    )

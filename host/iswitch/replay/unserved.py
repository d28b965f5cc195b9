"""The error for a request that was cancelled, or that was in flight when its session was lost."""

from iswitch.errors import IswitchError
from iswitch.replay.errors import CorruptTableError, NotServedError, SessionLostError
from iswitch.replay.request import Request
from iswitch.serial import serial_distance
from iswitch.wire.replay import WAITS, ReplayOutcome

__all__ = ["corrupt_error", "unserved_error"]

_WAITED_FOR = {
    ReplayOutcome.TICKET: (
        "its ticket was not due: the table is at ticket {current}, and the request has ticket {own}",
        "execute the requests with the tickets before it, or use ticket=0",
    ),
    ReplayOutcome.ITEMS: (
        "there are not enough items: the table has {filled}, and {adds} were ever added",
        "add more items, or lower `min_adds`, or `min_size_to_sample` of the limits",
    ),
    ReplayOutcome.RATE: ("the limit on samples per insert did not allow it", "add or sample more, or set other limits"),
    ReplayOutcome.EMPTY: (
        "all priorities are 0",
        "add items, or give some items a priority above 0 (`max_times_sampled` sets priorities to 0)",
    ),
}
"""For each reason to wait, what the request waited for and what helps."""
if set(_WAITED_FOR) != WAITS:
    raise ImportError(f"a sentence is needed for each of {WAITS}")


def corrupt_error(table: int, *, address: str) -> CorruptTableError:
    """Return the error for a table in which the switch found a bit error."""
    return CorruptTableError(
        f"table {table} at {address} is corrupt: the switch found a bit error in its priorities or their sums, and "
        "samples and lists nothing, so no batch was wrong. Rebuild the table, while it serves, with "
        f"ReplayClient.rebuild or `iswitch rebuild-replay --table {table} --switch {address}`"
    )


def unserved_error(request: Request, *, address: str, wait_s: float) -> IswitchError:
    """Return the error for a request that the switch did not execute.

    Parameters
    ----------
    request : Request
        A settled request. It counts as reported from now on.
    address : str
        Address of the switch, for the message.
    wait_s : float
        How long requests may wait, in seconds, for the message.

    Returns
    -------
    IswitchError
        NotServedError if the request was cancelled, CorruptTableError if the table is corrupt, SessionLostError if the
        outcome of the request is unknown.
    """
    request.reported = True
    if request.outcome == ReplayOutcome.CORRUPT:
        return corrupt_error(request.table, address=address)
    where = f"{request.kind.name} to table {request.table} at {address}"
    if request.outcome is None or request.outcome not in _WAITED_FOR or request.status is None:
        return SessionLostError(
            f"{where} was in flight when the session was lost: the switch may or may not have executed it. Call "
            "`reopen`, and repeat it if a second execution does no harm"
        )
    reason, remedy = _WAITED_FOR[request.outcome]
    status = request.status
    reason = reason.format(current=status.ticket, own=request.ticket, filled=status.filled, adds=status.adds)
    passed = request.outcome == ReplayOutcome.TICKET and serial_distance(status.ticket, request.ticket) > 0
    duration = "and that ticket has passed" if passed else f"for {wait_s:g} s"
    return NotServedError(
        f"{where} was not executed, because {reason}, {duration}. It was cancelled: {remedy}", request.outcome
    )

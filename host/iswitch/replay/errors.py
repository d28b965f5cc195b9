"""Errors of the replay client. Each message says what happened and what to do about it."""

from iswitch.errors import IswitchError
from iswitch.wire.replay import ReplayOutcome

__all__ = [
    "CorruptTableError",
    "MemoryExhaustedError",
    "NoFreeSessionError",
    "NoReplayServiceError",
    "NotServedError",
    "SessionLostError",
]


class NoReplayServiceError(IswitchError):
    """The switch was built without the replay service."""


class NoFreeSessionError(IswitchError):
    """All sessions of the replay service belong to clients that are active."""


class SessionLostError(IswitchError):
    """The switch has no record of this session any more. Either the client was silent for more than 10 s while another
    client needed its session, or the switch restarted. Or an exception of a signal handler, such as KeyboardInterrupt,
    has stopped the client in the middle of a message. The switch may or may not have executed requests that it has not
    acknowledged. To go on, call `ReplayClient.reopen` or make a new client."""


class MemoryExhaustedError(IswitchError):
    """The session's log is full of data that items in the table still need. What did not fit was not added."""


class CorruptTableError(IswitchError):
    """A bit error was found in the priorities of a table or in their sums. The table is neither sampled nor listed
    until it is rebuilt: call `ReplayClient.rebuild`, or the command `iswitch rebuild-replay`."""


class NotServedError(IswitchError, TimeoutError):
    """A request had to wait for longer than `wait_s`. It was cancelled and changed nothing.

    Attributes
    ----------
    outcome : ReplayOutcome
        What the request waited for: TICKET, ITEMS, RATE or EMPTY.
    """

    def __init__(self, message: str, outcome: ReplayOutcome):
        super().__init__(message)
        self.outcome = outcome

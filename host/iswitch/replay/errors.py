"""What can go wrong between a client and the replay service; every message says what happened and what to do about
it."""

from iswitch.errors import IswitchError
from iswitch.wire.replay import Fate

__all__ = ["MemoryExhaustedError", "NoFreeSessionError", "NoReplayServiceError", "NotServedError", "SessionLostError"]


class NoReplayServiceError(IswitchError):
    """The switch was built without the replay service, or with one that the client's fields do not fit."""


class NoFreeSessionError(IswitchError):
    """All places for sessions are taken by clients that are there."""


class SessionLostError(IswitchError):
    """The switch does not know this session any more: the client was silent for more than 10 s while another one needed
    its place, or the switch restarted. What was not acknowledged may or may not have been carried out. To go on:
    `reopen`, or make a new client."""


class MemoryExhaustedError(IswitchError):
    """The session's log is full, and all that is in it belongs to items that are still in the table. What did not fit
    was not added."""


class NotServedError(IswitchError, TimeoutError):
    """A request was not carried out within the time allowed because it had to wait, for `fate`. It was taken back, and
    changed nothing."""

    def __init__(self, message: str, fate: Fate):
        super().__init__(message)
        self.fate = fate

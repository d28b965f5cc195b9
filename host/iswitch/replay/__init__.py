"""Prioritized experience replay in the switch: a client with the calls of a usual replay buffer."""

from iswitch.replay.client import ReplayClient
from iswitch.replay.errors import (
    CorruptTableError,
    MemoryExhaustedError,
    NoFreeSessionError,
    NoReplayServiceError,
    NotServedError,
    SessionLostError,
)
from iswitch.replay.fifo import Fifo, FifoBatch
from iswitch.replay.prefetch import Prefetch
from iswitch.replay.records import Field
from iswitch.replay.sampling import Batch
from iswitch.replay.statistics import Statistics
from iswitch.replay.update import PendingUpdate
from iswitch.replay.writer import PendingAdd

__all__ = [
    "Batch",
    "CorruptTableError",
    "Field",
    "Fifo",
    "FifoBatch",
    "MemoryExhaustedError",
    "NoFreeSessionError",
    "NoReplayServiceError",
    "NotServedError",
    "PendingAdd",
    "PendingUpdate",
    "Prefetch",
    "ReplayClient",
    "SessionLostError",
    "Statistics",
]

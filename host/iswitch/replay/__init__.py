"""Prioritized experience replay that a switch serves: a client shaped like the replay buffers people use."""

from iswitch.replay.client import ReplayClient, Updated
from iswitch.replay.errors import (
    MemoryExhaustedError,
    NoFreeSessionError,
    NoReplayServiceError,
    NotServedError,
    SessionLostError,
)
from iswitch.replay.prefetch import Prefetch
from iswitch.replay.records import Field
from iswitch.replay.sampling import Batch
from iswitch.replay.statistics import Statistics
from iswitch.replay.writer import Added

__all__ = [
    "Added",
    "Batch",
    "Field",
    "MemoryExhaustedError",
    "NoFreeSessionError",
    "NoReplayServiceError",
    "NotServedError",
    "Prefetch",
    "ReplayClient",
    "SessionLostError",
    "Statistics",
    "Updated",
]

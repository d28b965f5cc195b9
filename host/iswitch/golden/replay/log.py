"""Golden model of the memory: records table by table, then logs session by session, byte after byte; all 0 at first.

Unit u of a log stands at u modulo `log_units`, so a log holds its newest `log_units` units.
"""

from iswitch.config import Replay
from iswitch.golden.interface.serial import SERIAL
from iswitch.golden.replay.session import Session
from iswitch.wire.replay import UNIT_BYTES, ReplayOutcome

__all__ = ["Memory", "holds_units", "write_fault"]


def holds_units(session: Session, start: int, units: int) -> bool:
    """Return whether a log holds these units. It holds no units at `start` if that is in the log, or its end.

    If the row of its session has a bit error, it holds nothing.
    """
    return (
        not session.corrupt and (start - session.oldest) % SERIAL + units <= (session.written - session.oldest) % SERIAL
    )


def write_fault(session: Session, start: int, oldest: int, units: int, most: int) -> ReplayOutcome | None:
    """Return what forbids an append to a log of `most` units, or None.

    `oldest` may advance up to where the end is before the append.
    """
    if start != session.written or not holds_units(session, oldest, 0):
        return ReplayOutcome.RANGE
    return ReplayOutcome.MEMORY if (session.written - oldest) % SERIAL + units > most else None


class Memory:
    """The memory. `bytes` is all of it, as `Replay.memory_bytes` counts."""

    def __init__(self, config: Replay) -> None:
        self.config = config
        self.bytes = bytearray(config.memory_bytes)
        self.logs = config.tables * config.capacity * config.record_bytes

    def record(self, table: int, slot: int) -> slice:
        """Return where the record of a slot stands."""
        at = (table * self.config.capacity + slot) * self.config.record_bytes
        return slice(at, at + self.config.record_bytes)

    def unit(self, session: int, number: int) -> slice:
        """Return where a unit of a session's log stands."""
        at = self.logs + session * self.config.log_bytes + number % self.config.log_units * UNIT_BYTES
        return slice(at, at + UNIT_BYTES)

    def read(self, session: int, start: int, units: int) -> bytes:
        """Return units of a log."""
        return b"".join(self.bytes[self.unit(session, start + k)] for k in range(units))

    def write(self, session: int, start: int, units: bytes) -> None:
        """Write units of a log."""
        for k in range(len(units) // UNIT_BYTES):
            self.bytes[self.unit(session, start + k)] = units[k * UNIT_BYTES : (k + 1) * UNIT_BYTES]

"""Golden model of the memory: records table by table, then logs session by session, one byte after another; all 0 at
first.

Unit u of a log is in place u modulo `log_units` of it, so what is not older than `log_units` is still whole.
"""

from iswitch.config import Replay
from iswitch.wire.replay import UNIT_BYTES, Fate
from sim.model.replay.session import SERIAL, Place

__all__ = ["Memory", "there", "wrong_write"]


def there(place: Place, start: int, units: int) -> bool:
    """All these units are in the log. None at all are there if `start` is in the log, or its end."""
    return (start - place.oldest) % SERIAL + units <= (place.written - place.oldest) % SERIAL


def wrong_write(place: Place, start: int, oldest: int, units: int, most: int) -> Fate | None:
    """What forbids an append to a log of `most` units. `oldest` may go as far as the end is before the append."""
    if start != place.written or not there(place, oldest, 0):
        return Fate.RANGE
    return Fate.MEMORY if (place.written - oldest) % SERIAL + units > most else None


class Memory:
    """`bytes` is all of it, as `Replay.memory_bytes` counts."""

    def __init__(self, config: Replay) -> None:
        self.config = config
        self.bytes = bytearray(config.memory_bytes)
        self.logs = config.tables * config.capacity * config.record_bytes

    def record(self, table: int, slot: int) -> slice:
        """Where a slot's record is."""
        at = (table * self.config.capacity + slot) * self.config.record_bytes
        return slice(at, at + self.config.record_bytes)

    def unit(self, session: int, number: int) -> slice:
        at = self.logs + session * self.config.log_bytes + number % self.config.log_units * UNIT_BYTES
        return slice(at, at + UNIT_BYTES)

    def read(self, session: int, start: int, units: int) -> bytes:
        """Units of a log."""
        return b"".join(self.bytes[self.unit(session, start + k)] for k in range(units))

    def write(self, session: int, start: int, units: bytes) -> None:
        for k in range(len(units) // UNIT_BYTES):
            self.bytes[self.unit(session, start + k)] = units[k * UNIT_BYTES : (k + 1) * UNIT_BYTES]

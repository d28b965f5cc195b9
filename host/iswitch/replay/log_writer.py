"""Bytes on their way into a session's log, and what is done when it is full."""

import numpy as np

from iswitch.replay.channel import Request
from iswitch.replay.errors import MemoryExhaustedError
from iswitch.replay.log import LogSpace
from iswitch.replay.records import units_of
from iswitch.replay.session import Session
from iswitch.wire.replay import PAYLOAD_BYTES, UNIT_BYTES, WRITE, Kind

__all__ = ["LogWriter"]

_UNITS = PAYLOAD_BYTES // UNIT_BYTES  # in a WRITE


class LogWriter:
    """Appends to a session's log. pushed: bytes sent."""

    def __init__(self, session: Session):
        self.session = session
        opened, config = session.opened, session.config
        self.space = LogSpace(
            units=config.log_units,
            written=opened.written,
            oldest=opened.oldest,
            adds=opened.adds,
            capacity=config.capacity,
        )
        self.pushed = 0
        self._unsent = bytearray()
        self._start = self.space.end  # of what is unsent
        self._oldest = self.space.oldest
        self.settle = lambda: None
        """Takes notice of items that were answered."""

    def append(self, data: bytes | memoryview) -> int:
        """Whole units, from where they begin; sent at once as far as they fill requests. MemoryExhaustedError."""
        units = units_of(len(data))
        if self.space.room(self.session.adds) < units:
            self._make_room(units)
        start, self._oldest = self.space.append(units, self.session.adds)
        self._unsent += data
        self._unsent += bytes(units * UNIT_BYTES - len(data))
        while len(self._unsent) >= PAYLOAD_BYTES:
            self._write(_UNITS)
        return start

    def flush(self) -> None:
        """Sends what has not filled a request."""
        if self._unsent:
            self._write(len(self._unsent) // UNIT_BYTES)

    def _write(self, units: int) -> None:
        size = units * UNIT_BYTES
        head = np.array((self._start % 2**32, min(self._oldest, self._start) % 2**32), WRITE)
        self.session.put(Request(Kind.WRITE, count=units, body=head.tobytes() + bytes(self._unsent[:size])))
        del self._unsent[:size]
        self._start += units
        self.pushed += size

    def _make_room(self, units: int) -> None:
        """Looks which items are gone by now; if that is not enough, gives up what others might like to read."""
        self.session.wait(lambda: all(request.kind == Kind.SAMPLE for request in self.session.channel.requests()))
        self.settle()
        self.session.look()
        while self.space.room(self.session.adds) < units:
            if not self.space.give_way():
                raise MemoryExhaustedError(self._exhausted(units))

    def _exhausted(self, units: int) -> str:
        config, held = self.session.config, self.space.units - self.space.room(self.session.adds)
        return (
            f"the log of session {self.session.index} at {self.session.address} is full: {held * UNIT_BYTES} of its {config.log_bytes} bytes "
            f"are needed by items that are still in the table or by parameters, and {units * UNIT_BYTES} more do not fit"
        )

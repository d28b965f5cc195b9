"""Append bytes to a session's log, and make room in it when it is full."""

import numpy as np

from iswitch.replay.errors import MemoryExhaustedError
from iswitch.replay.log_space import LogSpace
from iswitch.replay.records import units_for
from iswitch.replay.request import Request
from iswitch.replay.session import Session
from iswitch.wire.replay import PAYLOAD_BYTES, UNIT_BYTES, WRITE, Kind

__all__ = ["LogWriter"]

_WRITE_UNITS = PAYLOAD_BYTES // UNIT_BYTES
"""The most units in a WRITE."""


class LogWriter:
    """Appends to the log of a session.

    Attributes
    ----------
    space : LogSpace
        Which units are needed.
    bytes_sent : int
        Bytes of WRITE requests so far, each counted once.
    process_answers : callable
        Called before room is made: takes note of items that the switch has acknowledged.
    """

    def __init__(self, session: Session):
        self.session = session
        opened, config = session.opening_status, session.config
        self.space = LogSpace(
            units=config.log_units,
            written=opened.written,
            oldest=opened.oldest,
            adds=opened.adds,
            capacity=config.capacity,
        )
        self.bytes_sent = 0
        self.process_answers = lambda: None
        self._unsent = bytearray()
        self._start = self.space.end  # first unit of what is unsent
        self._oldest = self.space.oldest

    def append(self, data: bytes | memoryview) -> int:
        """Append data, padded to whole units, and send all full requests.

        Returns
        -------
        int
            The first unit of the data.

        Raises
        ------
        MemoryExhaustedError
            If the data does not fit.
        """
        units = units_for(len(data))
        if self.space.free_units(self.session.adds) < units:
            self._make_room(units)
        with self.session.section:
            start, self._oldest = self.space.reserve(units, self.session.adds)
            self._unsent += data
            self._unsent += bytes(units * UNIT_BYTES - len(data))
        while len(self._unsent) >= PAYLOAD_BYTES:
            if not self._write_many():
                self._write(_WRITE_UNITS)
        return start

    def flush(self) -> None:
        """Send what has not filled a request."""
        while self._unsent:
            self._write(min(_WRITE_UNITS, len(self._unsent) // UNIT_BYTES))

    def _write(self, units: int) -> None:
        size = units * UNIT_BYTES
        head = np.array((self._start % 2**32, min(self._oldest, self._start) % 2**32), WRITE)
        request = Request(Kind.WRITE, count=units, body=head.tobytes() + bytes(self._unsent[:size]))
        self.session.make_room()
        with self.session.section:
            self.session.put(request)
            del self._unsent[:size]
            self._start += units
            self.bytes_sent += size

    def _write_many(self) -> int:
        """Queue full requests, as many as there is room for. Return how many; 0 if Python must queue them one by
        one."""
        self.session.make_room()
        count = min(len(self._unsent) // PAYLOAD_BYTES, self.session.room)
        starts = self._start + _WRITE_UNITS * np.arange(count)
        heads = np.zeros(count, WRITE)
        heads["start"], heads["oldest"] = starts % 2**32, np.minimum(self._oldest, starts) % 2**32
        data = np.frombuffer(self._unsent, np.uint8, count * PAYLOAD_BYTES).reshape(count, PAYLOAD_BYTES)
        bodies = np.concatenate([heads.view(np.uint8).reshape(count, -1), data], axis=1)
        del data  # the bytes can be resized again
        with self.session.section:
            queued = self.session.put_writes(bodies, _WRITE_UNITS)
            del self._unsent[: queued * PAYLOAD_BYTES]
            self._start += queued * _WRITE_UNITS
            self.bytes_sent += queued * PAYLOAD_BYTES
        return queued

    def _make_room(self, units: int) -> None:
        """Find out which items have been overwritten in the table by now. If that does not free enough units, release
        units that only other clients may want."""
        self.session.wait_until(lambda: self.session.channel.only_samples)
        self.process_answers()
        self.session.read_status()
        while self.space.free_units(self.session.adds) < units:
            if not self.space.release_optional():
                raise MemoryExhaustedError(self._exhausted(units))

    def _exhausted(self, units: int) -> str:
        config, needed = self.session.config, self.space.units - self.space.free_units(self.session.adds)
        return (
            f"the log of session {self.session.index} at {self.session.address} is full: {needed * UNIT_BYTES} of "
            f"its {config.log_bytes} bytes "
            f"are needed by items that are still in the table or by parameters, and {units * UNIT_BYTES} more do not "
            "fit"
        )

"""Publish the parameters of a network, from a learner to the actors.

Parameters are units of the learner's log. The learner publishes where they are, and may broadcast them to all clients
at once. They begin with a unit that contains their length and a digest. An actor puts them together from broadcasts and
from the log, and accepts them only if the digest is right. If a client of another kind has published units without such
a beginning, `get` returns the units as they are.
"""

import hashlib

import numpy as np

from iswitch.errors import IswitchError
from iswitch.replay.errors import MemoryExhaustedError
from iswitch.replay.log_writer import LogWriter
from iswitch.replay.messages import Reply, Status
from iswitch.replay.reading import LogRead
from iswitch.replay.records import units_for
from iswitch.replay.request import Request
from iswitch.replay.session import Session
from iswitch.wire.replay import LOAD, PAYLOAD_BYTES, PUBLISH, UNIT_BYTES, Kind, ReplayOutcome

__all__ = ["Parameters"]

_HEAD = np.dtype([("magic", "<u4"), ("version", "<u4"), ("size", "<u8"), ("digest", "u1", 16), ("reserved", "u1", 32)])
_MAGIC = 0x50574969  # "iIWP"
_VERSIONS = 3
"""Versions that are kept in the log if they fit: the version that is written, the version that is read, and a version
for slow readers."""
_BROADCAST_UNITS = PAYLOAD_BYTES // UNIT_BYTES
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
"""Pauses between two looks for newer parameters."""


def _digest(data: bytes) -> np.ndarray:
    return np.frombuffer(hashlib.blake2b(data, digest_size=_HEAD["digest"].shape[0]).digest(), np.uint8)


class Parameters:
    """The parameters of one table, as one client sets and gets them.

    Parameters
    ----------
    session : Session
        The session.
    log : LogWriter
        Writes to the session's log.
    """

    def __init__(self, session: Session, log: LogWriter):
        self.session, self.log = session, log

    # The learner's side

    def set(self, version: int, data: bytes, *, broadcast: bool) -> None:
        """Write parameters to the log and publish them.

        Parameters
        ----------
        version : int
            Version of the parameters, 1 to 2^32 - 1.
        data : bytes
            The parameters.
        broadcast : bool
            Send them to all clients, too.

        Raises
        ------
        MemoryExhaustedError
            If the log cannot hold them.
        IswitchError
            If another client writes to this session's log.
        """
        head = np.zeros(1, _HEAD)
        head["magic"], head["version"], head["size"], head["digest"] = _MAGIC, version, len(data), _digest(data)
        content = head.tobytes() + data
        units, session = units_for(len(content)), self.session
        start = self.log.space.end
        self.log.space.pin_parameters(start, keep=_VERSIONS)
        try:
            for at in range(0, len(content), PAYLOAD_BYTES):
                self.log.append(content[at : at + PAYLOAD_BYTES])
        except MemoryExhaustedError as full:
            self.log.space.unpin_parameters()
            raise MemoryExhaustedError(
                f"{full}. Parameters of {len(data)} bytes take {units * UNIT_BYTES} of a log of "
                f"{session.config.log_bytes} bytes, and three versions "
                "should fit: build the switch with a larger `log_bytes`, give parameters a client of their own, or "
                "transfer them outside "
                "the replay service"
            ) from None
        self.log.flush()
        body = np.array((start % 2**32, units, version, 0), PUBLISH)
        published = session.submit(Request(Kind.PUBLISH, body=body.tobytes()))
        session.wait_served([published])
        if published.outcome != ReplayOutcome.DONE:
            raise IswitchError(
                f"the switch at {session.address} did not publish units {start % 2**32} to {(start + units) % 2**32} "
                "of the log "
                f"({published.outcome and published.outcome.name}): another client writes to this session's log. "
                "Make a new ReplayClient"
            )
        if broadcast:
            self._broadcast(start, units)

    def _broadcast(self, start: int, units: int) -> None:
        unanswered = -(-units // _BROADCAST_UNITS)

        def count_reply(reply: Reply) -> None:
            nonlocal unanswered
            unanswered -= 1

        for at in range(0, units, _BROADCAST_UNITS):
            body = np.zeros(1, LOAD)
            body["start"], body["session"] = (start + at) % 2**32, self.session.index
            count = min(_BROADCAST_UNITS, units - at)
            self.session.query(Kind.SHOUT, count=count, body=body.tobytes(), on_reply=count_reply)
        self.session.wait_until(lambda: not unanswered)

    # The actors' side

    def get(self, newer_than: int, timeout_s: float) -> tuple[int, bytes] | None:
        """Return the latest version above `newer_than` and its data, as soon as there is one; None if there is none
        within `timeout_s` seconds."""
        session = self.session
        deadline, pause_s = session.transport.now() + timeout_s, _FIRST_PAUSE_S
        while True:
            session.poll()
            found = self._from_broadcasts(newer_than) or self._from_log(session.read_status(), newer_than)
            now = session.transport.now()
            if found or now >= deadline:
                return found
            session.poll(min(pause_s, deadline - now))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _broadcasts_of(self, session: int) -> dict[int, bytes]:
        """Return the broadcasts from a session's log, by their first unit."""
        return {received.start: received.data for received in self.session.broadcasts if received.session == session}

    def _from_broadcasts(self, newer_than: int) -> tuple[int, bytes] | None:
        """Return the latest version that was received completely by broadcast."""
        heads = [
            (int(head["version"]), received, head)
            for received in self.session.broadcasts
            if received.table == self.session.table and len(received.data) >= _HEAD.itemsize
            for head in np.frombuffer(received.data, _HEAD, 1)
            if head["magic"] == _MAGIC and head["version"] > newer_than
            if head["size"] <= self.session.config.log_bytes  # a larger one never was in a log
        ]
        for version, received, head in sorted(heads, key=lambda found: found[0], reverse=True):
            units = units_for(_HEAD.itemsize + int(head["size"]))
            pieces = self._pieces(self._broadcasts_of(received.session), received.start, units)
            complete = all(piece is not None for _, piece in pieces)
            if complete and (data := _verified(b"".join(piece or b"" for _, piece in pieces))) is not None:
                return version, data
        return None

    @staticmethod
    def _pieces(received: dict[int, bytes], start: int, units: int) -> list[tuple[int, bytes | None]]:
        """Divide a range of units into the pieces that were received by broadcast, and single units that were not.
        Return for each the first unit, and the data or None."""
        pieces: list[tuple[int, bytes | None]] = []
        at = 0
        while at < units:
            data = received.get((start + at) % 2**32)
            data = data and data[: (units - at) * UNIT_BYTES]
            pieces.append(((start + at) % 2**32, data))
            at += len(data) // UNIT_BYTES if data else 1
        return pieces

    def _from_log(self, status: Status, newer_than: int) -> tuple[int, bytes] | None:
        """Return the version that the table has now, from broadcasts as far as they came and otherwise from the log.
        Return None if it is not newer, or if it was overwritten meanwhile."""
        if not status.units or status.version <= newer_than:
            return None
        pieces = self._pieces(self._broadcasts_of(status.publisher), status.start, status.units)
        missing = np.array([unit for unit, piece in pieces if piece is None], np.uint32)
        read = LogRead(self.session, np.full(len(missing), status.publisher, np.uint8), missing, 1)
        self.session.wait_until(read.done)
        if read.overwritten.any():
            return None
        units_read = iter(read.data[read.index])
        content = b"".join(next(units_read).tobytes() if piece is None else piece for _, piece in pieces)
        data = _verified(content)
        return status.version, content if data is None else data


def _verified(content: bytes) -> bytes | None:
    """Return the parameters in a range of the log; None if the length or the digest is wrong."""
    head = np.frombuffer(content, _HEAD, 1)[0]
    data = content[_HEAD.itemsize : _HEAD.itemsize + int(head["size"])]
    good = head["magic"] == _MAGIC and len(data) == head["size"] and np.array_equal(_digest(data), head["digest"])
    return data if good else None

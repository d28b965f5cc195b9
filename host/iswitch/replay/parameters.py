"""Parameters of a network, from a learner to the actors: a published piece of the learner's log, which it may shout to
all of them.

The piece begins with a unit that says how long it is and what its digest is, so what was put together from shouts and
from the log is the version as it was set, or is not taken. What another kind of client has published, without that
unit, comes as whole units.
"""

import hashlib

import numpy as np

from iswitch.errors import IswitchError
from iswitch.replay.channel import Request
from iswitch.replay.errors import MemoryExhaustedError
from iswitch.replay.log_writer import LogWriter
from iswitch.replay.messages import Reply, Status
from iswitch.replay.reading import Loading
from iswitch.replay.records import units_of
from iswitch.replay.session import Session
from iswitch.wire.replay import LOAD, PAYLOAD_BYTES, PUBLISH, UNIT_BYTES, Fate, Kind

__all__ = ["Parameters"]

_HEAD = np.dtype([("magic", "<u4"), ("version", "<u4"), ("size", "<u8"), ("digest", "u1", 16), ("reserved", "u1", 32)])
_MAGIC = 0x50574969  # "iIWP"
_VERSIONS = 3
"""So many are kept in the log if they fit: the one that is written, the one that is read, and one for those who are
slow."""
_UNITS = PAYLOAD_BYTES // UNIT_BYTES
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


def _digest(data: bytes) -> np.ndarray:
    return np.frombuffer(hashlib.blake2b(data, digest_size=_HEAD["digest"].shape[0]).digest(), np.uint8)


class Parameters:
    """Of one table, set and got by one client."""

    def __init__(self, session: Session, log: LogWriter):
        self.session, self.log = session, log

    # The learner's side

    def set(self, version: int, data: bytes, *, shout: bool) -> None:
        """Writes, publishes, and shouts if asked to. MemoryExhaustedError if the log cannot hold them."""
        head = np.zeros(1, _HEAD)
        head["magic"], head["version"], head["size"], head["digest"] = _MAGIC, version, len(data), _digest(data)
        whole = head.tobytes() + data
        units, session = units_of(len(whole)), self.session
        start = self.log.space.end
        self.log.space.publish(start, keep=_VERSIONS)
        try:
            for at in range(0, len(whole), PAYLOAD_BYTES):
                self.log.append(whole[at : at + PAYLOAD_BYTES])
        except MemoryExhaustedError as full:
            self.log.space.unpublish()
            raise MemoryExhaustedError(
                f"{full}. Parameters of {len(data)} bytes take {units * UNIT_BYTES} of a log of {session.config.log_bytes} bytes, and three versions "
                "should fit: build the switch with a larger `log_bytes`, give parameters a client of their own, or send them in another way"
            ) from None
        self.log.flush()
        body = np.array((start % 2**32, units, version, 0), PUBLISH)
        published = session.put(Request(Kind.PUBLISH, body=body.tobytes()))
        session.served([published])
        if published.fate != Fate.DONE:
            raise IswitchError(
                f"the switch at {session.address} would not publish units {start % 2**32} to {(start + units) % 2**32} of the log "
                f"({published.fate and published.fate.name}): somebody else writes to this session's log"
            )
        if shout:
            self._shout(start, units)

    def _shout(self, start: int, units: int) -> None:
        left = -(-units // _UNITS)

        def heard(reply: Reply) -> None:
            nonlocal left
            left -= 1

        for at in range(0, units, _UNITS):
            body = np.zeros(1, LOAD)
            body["start"], body["session"] = (start + at) % 2**32, self.session.index
            self.session.ask(Kind.SHOUT, count=min(_UNITS, units - at), body=body.tobytes(), then=heard)
        self.session.wait(lambda: not left)

    # The actors' side

    def get(self, newer_than: int, timeout_s: float) -> tuple[int, bytes] | None:
        """The newest version above a number, as soon as there is one; None if there is none in time."""
        session = self.session
        deadline, pause_s = session.transport.now() + timeout_s, _FIRST_PAUSE_S
        while True:
            session.pump()
            found = self._shouted(newer_than) or self._published(session.look(), newer_than)
            now = session.transport.now()
            if found or now >= deadline:
                return found
            session.pump(min(pause_s, deadline - now))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _heard(self, session: int) -> dict[int, bytes]:
        """What was shouted from a session's log, by the first unit."""
        return {shout.start: shout.data for shout in self.session.shouts if shout.session == session}

    def _shouted(self, newer_than: int) -> tuple[int, bytes] | None:
        """The newest version that was shouted whole."""
        heads = [
            (int(head["version"]), shout, head)
            for shout in self.session.shouts
            if shout.table == self.session.table
            for head in np.frombuffer(shout.data, _HEAD, 1)
            if head["magic"] == _MAGIC and head["version"] > newer_than
        ]
        for version, shout, head in sorted(heads, key=lambda found: found[0], reverse=True):
            units = units_of(_HEAD.itemsize + int(head["size"]))
            pieces = self._pieces(self._heard(shout.session), shout.start, units)
            if (
                all(piece is not None for _, piece in pieces)
                and (data := _opened(b"".join(piece or b"" for _, piece in pieces))) is not None
            ):
                return version, data
        return None

    @staticmethod
    def _pieces(heard: dict[int, bytes], start: int, units: int) -> list[tuple[int, bytes | None]]:
        """A range of units as they were heard, None for single ones that were not: (unit, data)."""
        pieces: list[tuple[int, bytes | None]] = []
        at = 0
        while at < units:
            data = heard.get((start + at) % 2**32)
            data = data and data[: (units - at) * UNIT_BYTES]
            pieces.append(((start + at) % 2**32, data))
            at += len(data) // UNIT_BYTES if data else 1
        return pieces

    def _published(self, status: Status, newer_than: int) -> tuple[int, bytes] | None:
        """The version that the table has now, from shouts as far as they are here, the rest from the log; None if it is
        not newer, or was overwritten meanwhile."""
        if not status.units or status.version <= newer_than:
            return None
        pieces = self._pieces(self._heard(status.publisher), status.start, status.units)
        missing = np.array([unit for unit, piece in pieces if piece is None], np.uint32)
        loading = Loading(self.session, np.full(len(missing), status.publisher, np.uint8), missing, 1)
        self.session.wait(loading.done)
        if loading.gone.any():
            return None
        loaded = iter(loading.data[loading.index])
        whole = b"".join(next(loaded).tobytes() if piece is None else piece for _, piece in pieces)
        data = _opened(whole)
        return status.version, whole if data is None else data


def _opened(whole: bytes) -> bytes | None:
    """The parameters in a piece of log; None if it is not whole, or was put together from several."""
    head = np.frombuffer(whole, _HEAD, 1)[0]
    data = whole[_HEAD.itemsize : _HEAD.itemsize + int(head["size"])]
    good = head["magic"] == _MAGIC and len(data) == head["size"] and np.array_equal(_digest(data), head["digest"])
    return data if good else None

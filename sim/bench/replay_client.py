"""A client of the replay service at the level of frames: it builds requests and parses answers, without sockets, timers
or rules of order.

It serves the golden model, the gateware's benches and the emulator. Every builder takes header fields by name
(`token=0`, `count=7`), which override the client's own values.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from iswitch.wire import FRAME_BYTES, UDP_PORT, Type, version_type
from iswitch.wire.replay import (
    ADD_ROW,
    ALL_FRAGMENTS,
    END,
    FETCH_ROW,
    LIMITS,
    LIST,
    LOAD,
    OPEN,
    PUBLISH,
    REBUILD,
    REPLAY_FRAME,
    REPLAY_HEADER,
    SAMPLE,
    SAMPLED_ROW,
    STATUS,
    UNIT_BYTES,
    UPDATE_ROW,
    WRITE,
    Kind,
    ReplayOutcome,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC, parse, udp_frame

__all__ = ["ReplayClient", "ParsedFrame", "record", "parse_frame"]


class ParsedFrame(NamedTuple):
    """A parsed frame of the service. DATA has no `status`, and units as `payload`. An ANSWER has `rows` of
    SAMPLED_ROW."""

    type: Type
    header: np.void
    status: np.void | None
    rows: list[tuple[int, int]]
    payload: bytes

    @property
    def outcome(self) -> ReplayOutcome:
        """The outcome that an ANSWER reports. DATA has none and raises `AttributeError`."""
        if self.status is None:
            raise AttributeError("DATA has no reason")
        return ReplayOutcome(int(self.status["outcome"]))


def parse_frame(frame: bytes) -> ParsedFrame:
    """Parse a frame. Raise `ValueError` if a length, a checksum or the complement is wrong."""
    parse(frame)
    header = np.frombuffer(frame, REPLAY_FRAME, 1)[0]
    kind, body, end = (
        Type(int(header["version_type"]) & 0xF),
        frame[FRAME_BYTES : -END.itemsize],
        frame[-END.itemsize :],
    )
    if any(end[:6]):
        raise ValueError(f"the last row's first 6 bytes must be 0, not {end.hex()}")
    if kind == Type.DATA:
        if len(body) != int(header["count"]) * UNIT_BYTES:
            raise ValueError(f"DATA of {header['count']} units must not have {len(body)} bytes")
        return ParsedFrame(kind, header, None, [], body)
    rows = [(int(row[0]), int(row[1])) for row in np.frombuffer(body[STATUS.itemsize :], SAMPLED_ROW)]
    if len(rows) != int(header["count"]):
        raise ValueError(f"an ANSWER that says {header['count']} rows must not have {len(rows)}")
    return ParsedFrame(kind, header, np.frombuffer(body, STATUS, 1)[0], rows, b"")


def record(dtype: np.dtype, **fields: Any) -> bytes:
    """Return the bytes of one record of the wire. Fields that are not given are 0."""
    made = np.zeros(1, dtype)
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


def pairs(dtype: np.dtype, rows: Iterable[tuple[int, int]]) -> bytes:
    return np.array(list(rows), dtype).tobytes()


class ReplayClient:
    """A client at a `port` of the switch. `opened` sets its `session` and `token`. Every builder of an ordered kind
    takes the request's number."""

    def __init__(self, index: int, *, port: int | None = None, nonce: int | None = None) -> None:
        self.mac, self.ip, self.udp_port = bytes([2, 0, 0, 0, 1, index]), bytes([10, 0, 1, index]), 41000 + index
        self.port = index if port is None else port
        self.nonce = 0x0123456700000000 + 0x01010101 * (index + 1) if nonce is None else nonce
        self.session, self.token, self.table = 0, 0, 0

    def request(self, kind: int, body: bytes = b"", *, checksum: bool = True, **fields: int) -> bytes:
        """Return a request of any kind with these header fields."""
        values = {
            "version_type": version_type(Type.REQUEST),
            "kind": kind,
            "session": self.session,
            "table": self.table,
            "token": self.token,
        }
        return udp_frame(
            eth_dst=SWITCH_MAC,
            eth_src=self.mac,
            ip_src=self.ip,
            ip_dst=SWITCH_IP,
            udp_src=self.udp_port,
            udp_dst=UDP_PORT,
            payload=record(REPLAY_HEADER, **(values | fields)) + body,
            checksum=checksum,
        )

    def opened(self, answer: ParsedFrame) -> None:
        """Take session and token from the answer to an OPEN."""
        assert answer.status is not None
        self.session, self.token = int(answer.header["session"]), int(answer.status["nonce"]) % 2**32

    def open(self, *, challenge: int | None = None, **fields: int) -> bytes:
        """Return an OPEN with the service's challenge. Without one it is the first OPEN that the service gets."""
        ticket = self.nonce >> 32 if challenge is None else challenge
        return self.request(Kind.OPEN, record(OPEN, nonce=self.nonce), **({"ticket": ticket} | fields))

    def close(self, seq: int, **fields: int) -> bytes:
        return self.request(Kind.CLOSE, seq=seq, **fields)

    def write(self, seq: int, start: int, units: bytes, oldest: int = 0, **fields: int) -> bytes:
        body = record(WRITE, start=start, oldest=oldest) + units
        return self.request(Kind.WRITE, body, **({"seq": seq, "count": len(units) // UNIT_BYTES} | fields))

    def add(self, seq: int, items: Iterable[tuple[int, bytes]], **fields: int) -> bytes:
        """`items`: a priority and a record each."""
        rows = [record(ADD_ROW, priority=priority) + bytes for priority, bytes in items]
        return self.request(Kind.ADD, b"".join(rows), **({"seq": seq, "count": len(rows)} | fields))

    def sample(self, seq: int, count: int, seed: int, *, items: int = 0, stride: int = 0, **fields: int) -> bytes:
        body = record(SAMPLE, items=items, stride=stride, seed=(seed % 2**64, seed >> 64))
        return self.request(Kind.SAMPLE, body, **({"seq": seq, "count": count, "fragments": ALL_FRAGMENTS} | fields))

    def update(self, seq: int, rows: Iterable[tuple[int, int]], **fields: int) -> bytes:
        body = pairs(UPDATE_ROW, rows)
        return self.request(Kind.UPDATE, body, **({"seq": seq, "count": len(body) // UPDATE_ROW.itemsize} | fields))

    def publish(self, seq: int, start: int, units: int, version: int, **fields: int) -> bytes:
        return self.request(Kind.PUBLISH, record(PUBLISH, start=start, units=units, version=version), seq=seq, **fields)

    def limit(self, seq: int, *, header: dict[str, int] | None = None, **limits: int) -> bytes:
        """`limits`: fields of LIMITS."""
        return self.request(Kind.LIMIT, record(LIMITS, **limits), seq=seq, **(header or {}))

    def skip(self, seq: int, **fields: int) -> bytes:
        """Wants all fragments, should the number have been a SAMPLE's."""
        return self.request(Kind.SKIP, seq=seq, **({"fragments": ALL_FRAGMENTS} | fields))

    def fetch(self, items: Iterable[int], **fields: int) -> bytes:
        body = pairs(FETCH_ROW, ((item, 0) for item in items))
        return self.request(Kind.FETCH, body, **({"count": len(body) // FETCH_ROW.itemsize} | fields))

    def load(self, start: int, units: int, *, log: int, kind: int = Kind.LOAD, **fields: int) -> bytes:
        return self.request(kind, record(LOAD, start=start, session=log), **({"count": units} | fields))

    def shout(self, start: int, units: int, **fields: int) -> bytes:
        return self.load(start, units, log=self.session, kind=Kind.SHOUT, **fields)

    def look(self, **fields: int) -> bytes:
        return self.request(Kind.LOOK, **fields)

    def rebuild(self, seq: int, slot: int, count: int, **fields: int) -> bytes:
        return self.request(Kind.REBUILD, record(REBUILD, slot=slot), seq=seq, count=count, **fields)

    def list(self, slot: int, count: int, **fields: int) -> bytes:
        return self.request(Kind.LIST, record(LIST, slot=slot), **({"count": count} | fields))

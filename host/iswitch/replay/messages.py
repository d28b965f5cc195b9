"""Requests as bytes, and what comes back taken apart: `iswitch.wire.replay` for a client."""

import struct
from typing import NamedTuple

import numpy as np

from iswitch.wire import Type, version_type
from iswitch.wire.replay import END, REPLAY_HEADER, ROW_BYTES, STATUS, Kind

__all__ = ["Header", "Reply", "Status", "encode", "parse", "serial"]


class Header(NamedTuple):
    """`wire.replay.REPLAY_HEADER` as Python integers."""

    version_type: int
    kind: int
    session: int
    table: int
    seq: int
    count: int  # type: ignore[assignment]  # hides a method of tuples that nobody needs
    fragments: int
    ticket: int
    token: int
    reserved: int


class Status(NamedTuple):
    """`wire.replay.STATUS` as Python integers."""

    reason: int
    lowest: int
    highest: int
    publisher: int
    next: int
    adds: int
    ticket: int
    total: int
    draws: int
    done: int
    stale: int
    written: int
    oldest: int
    version: int
    start: int
    units: int
    filled: int
    nonce: int


def _packing(record: "np.dtype[np.void]", fields: tuple[str, ...]) -> struct.Struct:
    """How a record of unsigned integers is packed. ImportError if its fields are not those of the tuple."""
    if record.names != fields:
        raise ImportError(f"a tuple must have the record's fields {record.names}, not {fields}")
    return struct.Struct(
        "<" + "".join({1: "B", 2: "H", 4: "I", 8: "Q"}[record[name].itemsize] for name in record.names)
    )


_HEADER, _STATUS = _packing(REPLAY_HEADER, Header._fields), _packing(STATUS, Status._fields)
_REQUEST, _ANSWER, _DATA = (version_type(type) for type in (Type.REQUEST, Type.ANSWER, Type.DATA))
_BODY = REPLAY_HEADER.itemsize
_ROWS = _BODY + STATUS.itemsize
_END = END.itemsize


class Reply(NamedTuple):
    """What the switch sent. status: of an ANSWER, None if it is DATA. rows: what comes behind the status, or the
    payload of DATA."""

    header: Header
    status: Status | None
    rows: bytes


def encode(
    kind: Kind,
    *,
    session: int = 0,
    token: int = 0,
    table: int = 0,
    seq: int = 0,
    count: int = 0,
    fragments: int = 0,
    ticket: int = 0,
    body: bytes = b"",
) -> bytes:
    """A request's UDP payload. ValueError if the body is not whole rows."""
    if len(body) % ROW_BYTES:
        raise ValueError(f"a body must be rows of {ROW_BYTES} bytes, not {len(body)} bytes")
    return _HEADER.pack(_REQUEST, kind, session, table, seq, count, fragments, ticket, token, 0) + body


def parse(payload: memoryview) -> Reply | None:
    """A UDP payload from the switch; None if it is none of the service's."""
    if len(payload) < _BODY + _END or payload[0] not in (_ANSWER, _DATA):
        return None
    header = Header._make(_HEADER.unpack_from(payload))
    if header.version_type == _DATA:
        return Reply(header, None, bytes(payload[_BODY:-_END]))
    if len(payload) < _ROWS + _END:
        return None
    return Reply(header, Status._make(_STATUS.unpack_from(payload, _BODY)), bytes(payload[_ROWS:-_END]))


def serial(number: int, than: int) -> int:
    """How far a serial number modulo 2^32 is behind another one: -2^31 to 2^31 - 1."""
    return (number - than + 2**31) % 2**32 - 2**31

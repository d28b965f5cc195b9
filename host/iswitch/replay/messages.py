"""Requests as bytes, and answers as Python records: `iswitch.wire.replay` for a client."""

import struct
from typing import NamedTuple

import numpy as np

from iswitch.wire import Type, version_type
from iswitch.wire.replay import END, REPLAY_HEADER, ROW_BYTES, STATUS, Kind

__all__ = ["Header", "Reply", "Status", "encode", "parse", "parse_status"]


class Header(NamedTuple):
    """`iswitch.wire.replay.REPLAY_HEADER` as Python integers."""

    version_type: int
    kind: int
    session: int
    table: int
    seq: int
    count: int  # type: ignore[assignment]  # hides a method of tuples that nothing here uses
    fragments: int
    ticket: int
    token: int
    reserved: int


class Status(NamedTuple):
    """`iswitch.wire.replay.STATUS` as Python integers."""

    outcome: int
    lowest: int
    highest: int
    publisher: int
    next: int
    adds: int
    ticket: int
    total: int
    sampled: int
    done: int
    stale: int
    written: int
    oldest: int
    version: int
    start: int
    units: int
    filled: int
    nonce: int


def _struct_of(record: "np.dtype[np.void]", fields: tuple[str, ...]) -> struct.Struct:
    """Return the struct that packs a record of unsigned integers. Raises ImportError if the record has other fields."""
    if record.names != fields:
        raise ImportError(f"a tuple must have the record's fields {record.names}, not {fields}")
    return struct.Struct(
        "<" + "".join({1: "B", 2: "H", 4: "I", 8: "Q"}[record[name].itemsize] for name in record.names)
    )


_HEADER, _STATUS = _struct_of(REPLAY_HEADER, Header._fields), _struct_of(STATUS, Status._fields)
_REQUEST, _ANSWER, _DATA = (version_type(type) for type in (Type.REQUEST, Type.ANSWER, Type.DATA))
_BODY = REPLAY_HEADER.itemsize
_ROWS = _BODY + STATUS.itemsize
_END = END.itemsize
_new_tuple = tuple.__new__  # without a look at the number of fields, which the structs have already


class Reply(NamedTuple):
    """A message from the switch.

    Attributes
    ----------
    header : Header
        The header behind UDP.
    status : Status or None
        The status of an ANSWER; None if the message is DATA.
    rows : bytes
        What follows the status of an ANSWER, or the payload of DATA.
    """

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
    """Return the UDP payload of a request. Raises ValueError if the body does not consist of whole rows."""
    if len(body) % ROW_BYTES:
        raise ValueError(f"a body must be rows of {ROW_BYTES} bytes, not {len(body)} bytes")
    return _HEADER.pack(_REQUEST, kind, session, table, seq, count, fragments, ticket, token, 0) + body


def parse_status(record: bytes) -> Status:
    """Parse a status."""
    return _new_tuple(Status, _STATUS.unpack(record))


def parse(payload: memoryview) -> Reply | None:
    """Parse a UDP payload from the switch. Return None if it is not a message of the replay service."""
    if len(payload) < _BODY + _END or payload[0] not in (_ANSWER, _DATA):
        return None
    header = _new_tuple(Header, _HEADER.unpack_from(payload))
    if header.version_type == _DATA:
        return Reply(header, None, bytes(payload[_BODY:-_END]))
    if len(payload) < _ROWS + _END:
        return None
    status = _new_tuple(Status, _STATUS.unpack_from(payload, _BODY))
    return Reply(header, status, bytes(payload[_ROWS:-_END]))

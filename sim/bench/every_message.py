"""One message of each type, of each number format and of each kind of request, with the fields that numpy finds in it.

The bytes are random, so that a field at a wrong offset, of a wrong width or order shows another value.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from iswitch.wire import (
    ACK,
    CONTRIBUTION_HEADER,
    CONTROL,
    HEADER,
    RESULT_HEADER,
    TAIL,
    UPLINK_TAIL,
    Collective,
    Format,
    Type,
    version_type,
)
from iswitch.wire.formats import FORMATS
from iswitch.wire.replay import (
    ADD_ROW,
    END,
    FETCH_ROW,
    LIMITS,
    LOAD,
    OPEN,
    PUBLISH,
    REPLAY_HEADER,
    SAMPLE,
    SAMPLED_ROW,
    STATUS,
    UPDATE_ROW,
    WRITE,
    Kind,
)
from iswitch.wire.replay import LIST as LIST_ROW

__all__ = ["RENAMED", "ExpectedField", "messages"]

ExpectedField = tuple[str, Any, int]
"""Name without the prefix "iswitch.", value, and offset in the UDP payload."""

FLAGS = {  # docs/protocol.md, section 1
    Type.CONTRIBUTION: {"retransmission": 1, "boundary": 2, "requires_all": 8},
    Type.UPLINK: {"retransmission": 1, "boundary": 2, "requires_all": 8},
    Type.RECEIPT: {"want": 8},
    Type.RESULT: {"partial": 1, "resent": 2, "tainted": 4, "members_changed": 8},
}
RENAMED = {  # docs/protocol.md, section 1: what fields mean by type
    Type.NOTICE: {"count": "reason", "behind": "complement", "members": "collective"},
    Type.ACK: {"behind": "complement"},
    Type.CLAIM: {"members": "weights_seq"},
    Type.GRANT: {"count": "granted", "behind": "complement"},
    Type.REFUSE: {"behind": "complement", "members": "next_update_seq"},
}


def _rows(record: np.dtype, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return random records."""
    return np.frombuffer(rng.bytes(count * record.itemsize), record)


def _expected_rows(records: np.ndarray, at: int, prefix: str) -> list[ExpectedField]:
    """Return (name, value, offset) of each field of records in a row."""
    found: list[ExpectedField] = []
    assert records.dtype.names and records.dtype.fields
    for row in records:
        for name in records.dtype.names:
            kind, offset = records.dtype.fields[name][:2]
            if kind.subdtype and kind.subdtype[0].itemsize == 1:
                found.append((prefix + name, row[name].tobytes(), at + offset))
            elif kind.subdtype:
                size = kind.subdtype[0].itemsize
                found += [(prefix + name, int(value), at + offset + size * k) for k, value in enumerate(row[name])]
            else:
                found.append((prefix + name, int(row[name]), at + offset))
        at += records.dtype.itemsize
    return found


def _expected_header(header: np.ndarray, type: Type) -> list[ExpectedField]:
    """Return (name, value, offset) of each field of a header. What shares a byte is taken apart here."""
    found: list[ExpectedField] = []
    prefix = "replay." if type in (Type.REQUEST, Type.ANSWER, Type.DATA) else ""
    for name, value, offset in _expected_rows(header, 0, ""):
        name = RENAMED.get(type, {}).get(name, name)
        if name == "version_type":
            found += [("version", value >> 4, offset), ("type", value & 15, offset)]
        elif name == "format_flags":
            found.append(("format", value & 15, offset))
            found += [(f"flag.{flag}", bool(value >> 4 & bit), offset) for flag, bit in FLAGS.get(type, {}).items()]
        elif name == "collective":
            parts = Collective.from_word(value)._asdict().items()
            found += [(f"collective.{part}", number, offset) for part, number in parts]
        else:
            if name == "complement":
                value = int.from_bytes(value.to_bytes(2, "little"), "big")
            found.append((prefix + name, value, offset))
    return found


def _header_of(type: Type, record: np.dtype, rng: np.random.Generator, **fields: int) -> np.ndarray:
    """Return a random header of a type, with some fields as given."""
    header = _rows(record, 1, rng).copy()
    header["version_type"] = version_type(type)
    for name, value in fields.items():
        header[name] = value
    return header


def messages(seed: int = 1) -> Iterator[tuple[str, bytes, list[ExpectedField]]]:
    """Yield name, UDP payload and expected fields, in the order of their offsets, of each message."""
    rng = np.random.default_rng(seed)
    at = HEADER.itemsize

    def message(
        name: str, type: Type, header: np.ndarray, *parts: bytes | tuple[np.ndarray, str]
    ) -> tuple[str, bytes, list[ExpectedField]]:
        """Return a message of a header and parts: bytes, or records with the prefix of their fields' names."""
        payload, expected = header.tobytes(), _expected_header(header, type)
        for part in parts:
            if isinstance(part, bytes):
                expected += [("payload", part, len(payload))] if part else []
                payload += part
            else:
                records, prefix = part
                expected += _expected_rows(records, len(payload), prefix)
                payload += records.tobytes()
        return name, payload, expected

    for type in (Type.RECEIPT, Type.NOTICE, Type.CLAIM, Type.GRANT, Type.REFUSE):
        yield message(type.name, type, _header_of(type, HEADER, rng))
    yield message("CONTROL", Type.CONTROL, _header_of(Type.CONTROL, HEADER, rng), (_rows(CONTROL, 1, rng), "control."))
    yield message("ACK", Type.ACK, _header_of(Type.ACK, HEADER, rng), (_rows(ACK, 1, rng), "ack."))
    summed: list[tuple[Type, np.dtype, np.dtype | None, str]] = [
        (Type.CONTRIBUTION, CONTRIBUTION_HEADER, None, ""),
        (Type.RESULT, RESULT_HEADER, TAIL, "tail."),
        (Type.UPLINK, CONTRIBUTION_HEADER, UPLINK_TAIL, "uplink_tail."),
    ]
    for type, record, tail, prefix in summed:
        for format in Format:
            header = _header_of(type, record, rng, format_flags=int(rng.integers(16)) << 4 | format)
            elements = rng.integers(-1000, 1000, 9).astype(FORMATS[format].element)
            name, payload, expected = message(f"{type.name} of {format.name}", type, header)
            kind = {"f4": "float", "i4": "int32", "i8": "int64", "u2": "uint16", "f2": "uint16"}[elements.dtype.str[1:]]
            size, shown = elements.itemsize, elements.view("<u2") if elements.itemsize == 2 else elements
            expected += [(f"element.{kind}", value, at + size * k) for k, value in enumerate(shown.tolist())]
            payload += elements.tobytes()
            if tail is not None:
                last = _rows(tail, 1, rng)
                expected += _expected_rows(last, len(payload), prefix)
                payload += last.tobytes()
            yield name, payload, expected
    bodies: dict[Kind, list[int | tuple[np.dtype, int, str]]] = {
        Kind.OPEN: [(OPEN, 1, "open.")],
        Kind.CLOSE: [],
        Kind.WRITE: [(WRITE, 1, "write."), 128],
        Kind.ADD: [(ADD_ROW, 1, "add."), 64] * 3,
        Kind.SAMPLE: [(SAMPLE, 1, "sample.")],
        Kind.UPDATE: [(UPDATE_ROW, 5, "update.")],
        Kind.PUBLISH: [(PUBLISH, 1, "publish.")],
        Kind.LIMIT: [(LIMITS, 1, "limit.")],
        Kind.SKIP: [],
        Kind.FETCH: [(FETCH_ROW, 4, "fetch.")],
        Kind.LOAD: [(LOAD, 1, "load.")],
        Kind.LOOK: [],
        Kind.LIST: [(LIST_ROW, 1, "list.")],
        Kind.SHOUT: [(LOAD, 1, "shout.")],
        Kind.REBUILD: [(LIST_ROW, 1, "rebuild.")],
    }
    assert set(bodies) == set(Kind)
    for kind, body in bodies.items():
        header = _header_of(Type.REQUEST, REPLAY_HEADER, rng, kind=kind, count=3)
        parts = [rng.bytes(p) if isinstance(p, int) else (_rows(p[0], p[1], rng), p[2]) for p in body]
        yield message(f"REQUEST {kind.name}", Type.REQUEST, header, *parts)
    for count in (0, 6):
        header = _header_of(Type.ANSWER, REPLAY_HEADER, rng, kind=Kind.SAMPLE, count=count)
        yield message(
            f"ANSWER with {count} rows",
            Type.ANSWER,
            header,
            (_rows(STATUS, 1, rng), "status."),
            (_rows(SAMPLED_ROW, count, rng), "sampled."),
            (_rows(END, 1, rng), "end."),
        )
    for size in (0, 128):
        header = _header_of(Type.DATA, REPLAY_HEADER, rng, kind=Kind.LOAD)
        yield message(f"DATA of {size} bytes", Type.DATA, header, rng.bytes(size), (_rows(END, 1, rng), "end."))

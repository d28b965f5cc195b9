"""The generated Lua, run by Lua with a stub of Wireshark's interface, beside numpy's decoding of the same bytes."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from iswitch.capture.dissector import dissector
from iswitch.tools.cli import app
from iswitch.wire import (
    ACK,
    CONTRIBUTION_HEADER,
    CONTROL,
    HEADER,
    RESULT_HEADER,
    TAIL,
    UDP_PORT,
    UPLINK_TAIL,
    Collective,
    Format,
    Reason,
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
from sim.bench.wireshark_stub import LUA_VERSIONS, Wireshark

VECTORS = {path.stem: path for path in sorted((Path(__file__).parents[2] / "vectors").glob("*.hex"))}
ADDRESS_BYTES = 42
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


@pytest.fixture(scope="module", params=LUA_VERSIONS)
def wireshark(request):
    return Wireshark(dissector(), request.param)


def rows(record, count, rng):
    """Return random records."""
    return np.frombuffer(rng.bytes(count * record.itemsize), record)


def expected_rows(records, at, prefix):
    """Return (name, value, offset) of each field of records in a row."""
    found = []
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


def expected_header(header, type):
    """Return (name, value, offset) of each field of a header. What shares a byte is taken apart here."""
    found = []
    prefix = "replay." if type in (Type.REQUEST, Type.ANSWER, Type.DATA) else ""
    for name, value, offset in expected_rows(header, 0, ""):
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


def header_of(type, record, rng, **fields):
    header = rows(record, 1, rng).copy()
    header["version_type"] = version_type(type)
    for name, value in fields.items():
        header[name] = value
    return header


def messages(seed=1):
    """Yield (name, payload, expected fields) of each type, of each format, of each kind."""
    rng = np.random.default_rng(seed)
    at = HEADER.itemsize

    def message(name, type, header, *parts):
        """`parts`: (records, prefix) or bytes."""
        payload, expected = header.tobytes(), expected_header(header, type)
        for part in parts:
            if isinstance(part, bytes):
                expected += [("payload", part, len(payload))] if part else []
                payload += part
            else:
                records, prefix = part
                expected += expected_rows(records, len(payload), prefix)
                payload += records.tobytes()
        return name, payload, expected

    for type in (Type.RECEIPT, Type.NOTICE, Type.CLAIM, Type.GRANT, Type.REFUSE):
        yield message(type.name, type, header_of(type, HEADER, rng))
    yield message("CONTROL", Type.CONTROL, header_of(Type.CONTROL, HEADER, rng), (rows(CONTROL, 1, rng), "control."))
    yield message("ACK", Type.ACK, header_of(Type.ACK, HEADER, rng), (rows(ACK, 1, rng), "ack."))
    summed = [
        (Type.CONTRIBUTION, CONTRIBUTION_HEADER, None, ""),
        (Type.RESULT, RESULT_HEADER, TAIL, "tail."),
        (Type.UPLINK, CONTRIBUTION_HEADER, UPLINK_TAIL, "uplink_tail."),
    ]
    for type, record, tail, prefix in summed:
        for format in Format:
            header = header_of(type, record, rng, format_flags=int(rng.integers(16)) << 4 | format)
            elements = rng.integers(-1000, 1000, 9).astype(FORMATS[format].element)
            name, payload, expected = message(f"{type.name} of {format.name}", type, header)
            kind = {"f4": "float", "i4": "int32", "i8": "int64"}[elements.dtype.str[1:]]
            size = elements.itemsize
            expected += [(f"element.{kind}", value, at + size * k) for k, value in enumerate(elements.tolist())]
            payload += elements.tobytes()
            if tail is not None:
                last = rows(tail, 1, rng)
                expected += expected_rows(last, len(payload), prefix)
                payload += last.tobytes()
            yield name, payload, expected
    bodies = {
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
        header = header_of(Type.REQUEST, REPLAY_HEADER, rng, kind=kind, count=3)
        parts = [rng.bytes(p) if isinstance(p, int) else (rows(p[0], p[1], rng), p[2]) for p in body]
        yield message(f"REQUEST {kind.name}", Type.REQUEST, header, *parts)
    for count in (0, 6):
        header = header_of(Type.ANSWER, REPLAY_HEADER, rng, kind=Kind.SAMPLE, count=count)
        yield message(
            f"ANSWER with {count} rows",
            Type.ANSWER,
            header,
            (rows(STATUS, 1, rng), "status."),
            (rows(SAMPLED_ROW, count, rng), "sampled."),
            (rows(END, 1, rng), "end."),
        )
    for size in (0, 128):
        header = header_of(Type.DATA, REPLAY_HEADER, rng, kind=Kind.LOAD)
        yield message(f"DATA of {size} bytes", Type.DATA, header, rng.bytes(size), (rows(END, 1, rng), "end."))


MESSAGES = {name: (payload, expected) for name, payload, expected in messages()}


def shown(dissection):
    return [(field.name.removeprefix("iswitch."), field.value, field.offset) for field in dissection.fields]


def test_every_type_is_among_the_messages():
    assert {payload[0] & 15 for payload, _ in MESSAGES.values()} == set(Type)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_field_is_that_of_numpy(wireshark, name):
    payload, expected = MESSAGES[name]
    done = wireshark.dissect(payload)
    assert shown(done) == expected
    assert done.consumed == len(payload) and done.protocol == "iSwitch"
    assert done.info.startswith(name.partition(" of")[0].partition(" with")[0])


@pytest.mark.parametrize("name", VECTORS)
def test_frames_typed_by_hand_have_their_fields_where_they_were_typed(name):
    """Each line of a vector has the bytes of a field and its name, so the offsets are not ours."""
    payload, typed = b"", {}
    for line in VECTORS[name].read_text(encoding="utf-8").splitlines():
        octets, _, comment = line.partition("#")
        if octets.strip():
            label = comment.strip().partition(":")[0].partition(",")[0].strip()
            typed[len(payload) - ADDRESS_BYTES] = label, bytes.fromhex(octets)
            payload += bytes.fromhex(octets)
    done = Wireshark(dissector()).dissect(payload[ADDRESS_BYTES:])
    type, checked = Type(payload[ADDRESS_BYTES] & 15), 0
    for field, value, offset in shown(done):
        label, octets = typed.get(offset, ("", b""))
        if RENAMED.get(type, {}).get(label, label) == field.rpartition(".")[2]:
            order = "big" if field.endswith("complement") else "little"
            found = value if isinstance(value, bytes) else value.to_bytes(len(octets), order, signed=value < 0)
            assert found == octets, field
            checked += 1
    assert checked >= 5


def test_values_have_the_names_of_the_protocol():
    header = np.zeros(1, HEADER)
    header["version_type"], header["count"] = version_type(Type.NOTICE), Reason.EPOCH
    fields = {field.name: field.text for field in Wireshark(dissector()).dissect(header.tobytes()).fields}
    assert fields["iswitch.type"] == "NOTICE" and fields["iswitch.reason"] == "EPOCH"


@pytest.mark.parametrize("name", MESSAGES)
def test_a_truncated_capture_shows_the_fields_that_it_holds(wireshark, name):
    payload, expected = MESSAGES[name]
    whole = [field for field in expected if field[0] != "payload"]
    for have in range(len(payload)):
        added = [field for field in shown(wireshark.dissect(payload[:have], len(payload))) if field[0] != "payload"]
        assert added == whole[: len(added)]
        if have >= HEADER.itemsize:
            assert len(added) >= sum(field[2] < HEADER.itemsize for field in whole)


def test_random_and_short_datagrams_are_no_error(wireshark):
    rng = np.random.default_rng(2)
    kinds = set()
    for _ in range(3000):
        payload = bytearray(rng.bytes(int(rng.integers(0, 200))))
        if payload and rng.random() < 0.9:
            payload[0] = version_type(int(rng.integers(16)))
        done = wireshark.dissect(bytes(payload))
        assert done.consumed == (len(payload) if payload and payload[0] >> 4 == 2 else 0)
        assert all(field.offset < len(payload) for field in done.fields)
        kinds.add(payload[0] if payload else None)
    assert {version_type(type) for type in range(16)} <= kinds


def test_datagrams_of_another_version_are_left_to_others(wireshark):
    done = wireshark.dissect(bytes([0x30]) + bytes(30))
    assert (done.consumed, done.protocol, done.fields) == (0, None, [])


def test_the_ports_are_those_of_the_protocol_and_of_the_software_switch(wireshark):
    assert list(wireshark.udp_ports.entries) == [UDP_PORT, "27000-27063"]


def test_the_command_prints_the_dissector():
    done = CliRunner().invoke(app, ["dissector"])
    assert done.exit_code == 0 and done.output == dissector()

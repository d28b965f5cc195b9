"""The generated Lua, run by Lua with a stub of Wireshark's interface, beside numpy's decoding of the same bytes."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from iswitch.capture.dissector import dissector
from iswitch.tools.cli import app
from iswitch.wire import HEADER, UDP_PORT, Reason, Type, version_type
from sim.bench.every_message import RENAMED, messages
from sim.bench.wireshark_stub import LUA_VERSIONS, Wireshark

VECTORS = {path.stem: path for path in sorted((Path(__file__).parents[2] / "vectors").glob("*.hex"))}
ADDRESS_BYTES = 42


@pytest.fixture(scope="module", params=LUA_VERSIONS)
def wireshark(request):
    return Wireshark(dissector(), request.param)


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

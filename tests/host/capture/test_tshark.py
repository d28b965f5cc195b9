"""The generated dissector in Wireshark's own program, on captures with every message of sums and of replay.

The machine needs tshark (Debian: tshark), which set-up does not ask for. So the tests are in the slow tier;
`make wireshark` runs them, and they fail if tshark is missing.
"""

from itertools import pairwise

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapWriter

from iswitch.capture.dissector import dissector
from iswitch.config import Config, Replay
from iswitch.golden.switch import Switch
from iswitch.replay import Field, ReplayClient
from iswitch.wire import ADDRESSES, HEADER, UDP_PORT, Format, Type
from iswitch.wire.replay import Kind
from sim.bench import tshark
from sim.bench.asynchronous import AsynchronousWorker
from sim.bench.every_message import messages
from sim.bench.replay_network import Network
from sim.bench.tree import Tree
from sim.bench.wireshark_stub import Wireshark
from sim.emulator.pcap import Capture
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client

pytestmark = pytest.mark.slow
MESSAGES = {name: (payload, expected) for name, payload, expected in messages()}


@pytest.fixture(scope="module")
def lua(tmp_path_factory):
    path = tmp_path_factory.mktemp("dissector") / "iswitch.lua"
    path.write_text(dissector(), encoding="utf-8")
    return path


def written(path, payloads, *, captured=None, port=UDP_PORT):
    """Write datagrams, of each only the first bytes if so many were `captured`."""
    with PcapWriter(str(path)) as writer:
        for payload in payloads:
            frame = bytes(Ether(src=SWITCH_MAC, dst=SWITCH_MAC) / IP() / UDP(sport=40000, dport=port) / payload)
            packet = Ether(frame[: None if captured is None else ADDRESSES.itemsize + captured])
            packet.time, packet.wirelen = 0.0, len(frame)
            writer.write(packet)
    return path


def value(shown):
    """Return the number, the truth value or the bytes that a field has."""
    if shown.name == "iswitch.payload":
        return bytes.fromhex(shown.show.replace(":", ""))
    if shown.name == "iswitch.element.float":
        (exact,) = np.frombuffer(bytes.fromhex(shown.octets), "<f4")
        assert np.isclose(float(shown.show), exact, rtol=1e-5, atol=1e-44, equal_nan=True)  # shown with six digits
        return float(exact)
    if shown.show in ("True", "False"):
        return int(shown.show == "True")
    try:
        return int(shown.show, 0)
    except ValueError:
        return bytes.fromhex(shown.show.replace(":", ""))


def found(packet):
    return [(field.name.removeprefix("iswitch."), value(field), field.offset) for field in packet.fields]


def test_every_field_of_every_message_has_the_value_that_the_wire_records_give(tmp_path, lua):
    capture = written(tmp_path / "a.pcap", [payload for payload, _ in MESSAGES.values()])
    packets = tshark.dissect(capture, lua, "iswitch")
    assert len(packets) == len(MESSAGES)
    for (name, (_, expected)), packet in zip(MESSAGES.items(), packets, strict=True):
        assert found(packet) == expected, name
        assert packet.reports == [], name


def synchronous(record):
    """Two switches in a tree sum for their workers; then a member sends with an epoch that is no more."""
    tree = Tree()
    for switch in tree.switches:
        record(switch)
    rng = np.random.default_rng(1)
    for format in (Format.WINDOW64, Format.INT32):
        numbers = rng.integers(0, 2**30, (tree.world, 3, 16)).astype(np.uint32)
        tree.join().reduce(numbers, format=format, start=3 * (format == Format.INT32))
    late = tree.clients[0]
    late.epoch += 1
    tree.send(0, late.contribution(late.first_seq, np.zeros(16, np.uint32)))


def asynchronous(record):
    """Workers claim, are granted and refused, and report results, while a third of the switch's frames is lost."""
    config = Config(ports=4, members=3, jobs=2, window=2, elements=16)
    switch = Switch(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    record(switch)
    clients = [Client.numbered(k, port=k) for k in range(3)]
    by_mac = {client.mac: k for k, client in enumerate(clients)}
    for client in clients * 2:
        joined = client.join(world=3, elements=16, format=Format.INT32, staleness=1, segments=3, threshold=1)
        for _, frame in switch.receive(client.port, joined, 0):
            if frame[:6] in by_mac:
                clients[by_mac[frame[:6]]].take(frame)
    workers = [AsynchronousWorker(client, segments=3) for client in clients]
    rng = np.random.default_rng(2)
    for _ in range(600):
        worker = workers[rng.integers(3)]
        if rng.random() < 0.2:
            worker.compute()
        for due in worker.due():
            for _, frame in switch.receive(worker.client.port, due, 0):
                if rng.random() < 0.67:
                    workers[by_mac[frame[:6]]].take(frame)


def replay(record):
    """Two clients write, add, sample, read and update."""
    net = Network(Config(ports=4, replay=Replay(capacity=64, sessions=4, log_bytes=1 << 15)), loss=0.05)
    record(net.switch)
    spec = {"stack": Field((3, 8, 8), np.uint8, stacked=3), "long": Field((300,), np.float32)}
    one, two = (ReplayClient(net.transport(), spec) for _ in range(2))
    for number in range(12):
        one.add(priority=1.0 + number, stack=np.full((3, 8, 8), number, np.uint8), long=np.full(300, number, "f4"))
    one.flush()
    batch = two.sample(32)
    two.update_priority(batch.items, np.linspace(0.1, 5.0, len(batch)))
    two.flush()


def record_session(session):
    """Return the frames that enter and leave the switches of a session."""
    frames = []

    def record(switch):
        receive = switch.receive

        def received(port, frame, now_us):
            sent = receive(port, frame, now_us)
            frames.extend((bytes(frame), *(bytes(copy) for _, copy in sent)))
            return sent

        switch.receive = received

    session(record)
    return frames


TYPES = {
    synchronous: {Type.CONTRIBUTION, Type.RESULT, Type.UPLINK, Type.NOTICE, Type.CONTROL, Type.ACK},
    asynchronous: {Type.CLAIM, Type.GRANT, Type.REFUSE, Type.RECEIPT, Type.CONTRIBUTION, Type.RESULT},
    replay: {Type.REQUEST, Type.ANSWER, Type.DATA},
}


def test_the_sessions_together_have_every_type():
    assert set().union(*TYPES.values()) == set(Type)


@pytest.mark.parametrize("session", TYPES, ids=lambda session: session.__name__)
def test_recorded_sessions_have_no_malformed_field(tmp_path, lua, session):
    """The stub's fields are numpy's by tests/host/capture/test_dissector.py; Wireshark's must be the stub's."""
    frames = record_session(session)
    with Capture(tmp_path / "a.pcap") as capture:
        for number, frame in enumerate(frames):
            capture.write(frame, number)
    packets, stub = tshark.dissect(tmp_path / "a.pcap", lua, "iswitch"), Wireshark(dissector())
    assert len(packets) == len(frames)
    types = set()
    for frame, packet in zip(frames, packets, strict=True):
        size = int.from_bytes(frame[38:40]) - 8
        expected = stub.dissect(frame[ADDRESSES.itemsize :][:size]).fields
        assert found(packet) == [(each.name.removeprefix("iswitch."), each.value, each.offset) for each in expected]
        assert packet.reports == []
        types.add(Type(frame[ADDRESSES.itemsize] & 15))
    assert types >= TYPES[session]


@pytest.mark.parametrize("captured", [1, HEADER.itemsize - 1, HEADER.itemsize, 41, 70])
def test_a_truncated_capture_shows_the_fields_that_it_holds(tmp_path, lua, captured):
    capture = written(tmp_path / "a.pcap", [payload for payload, _ in MESSAGES.values()], captured=captured)
    for (name, (payload, expected)), packet in zip(
        MESSAGES.items(), tshark.dissect(capture, lua, "iswitch"), strict=True
    ):
        whole = [field for field in expected if field[0] != "payload"]
        shown = [field for field in found(packet) if field[0] != "payload"]
        assert shown == whole[: len(shown)], name
        assert len(shown) >= sum(end <= min(captured, HEADER.itemsize) for end in ends(whole, len(payload))), name
        assert not [report for report in packet.reports if "Malformed" in report or "Lua" in report], name


def ends(fields, size):
    """Return where each field ends at the latest: where the next one at another offset begins."""
    offsets = sorted({offset for _, _, offset in fields})
    after = dict(pairwise([*offsets, size]))
    return [after[offset] for _, _, offset in fields]


def test_random_datagrams_cause_no_error_of_the_dissector(tmp_path, lua):
    rng = np.random.default_rng(3)
    payloads = [bytes([0x20 | k % 16]) + rng.bytes(int(rng.integers(0, 120))) for k in range(400)]
    for packet in tshark.dissect(written(tmp_path / "a.pcap", payloads), lua, "iswitch"):
        assert packet.reports == []


@pytest.mark.parametrize("port", [27000, 27063])
def test_ports_of_the_software_switch_are_known(tmp_path, lua, port):
    payload, expected = MESSAGES["RECEIPT"]
    (packet,) = tshark.dissect(written(tmp_path / "a.pcap", [payload], port=port), lua, "iswitch")
    assert found(packet) == expected


def test_values_have_the_names_of_the_protocol_in_the_tree(tmp_path, lua):
    payloads = [payload for name, (payload, _) in MESSAGES.items() if name.startswith(("REQUEST", "CONTROL"))]
    labels = [
        {field.name: field.label for field in packet.fields}
        for packet in tshark.dissect(written(tmp_path / "a.pcap", payloads), lua, "iswitch")
    ]
    assert [row["iswitch.type"].partition("= ")[2] for row in labels] == [
        f"type: {Type(payload[0] & 15).name} ({payload[0] & 15})" for payload in payloads
    ]
    kinds = {row["iswitch.replay.kind"] for row in labels if "iswitch.replay.kind" in row}
    assert kinds == {f"kind: {kind.name} ({kind.value})" for kind in Kind}


ENTRY = "function iswitch.dissector(tvb, pinfo, root)"


@pytest.fixture
def dissect_with(tmp_path, lua):
    """Shows an ACK with a dissector in which one text is replaced."""

    def dissect(old, new):
        text = lua.read_text(encoding="utf-8")
        assert old in text
        (tmp_path / "wrong.lua").write_text(text.replace(old, new), encoding="utf-8")
        return tshark.dissect(written(tmp_path / "a.pcap", [MESSAGES["ACK"][0]]), tmp_path / "wrong.lua", "iswitch")

    return dissect


@pytest.mark.mutant
def test_a_field_at_a_wrong_offset_is_noticed(dissect_with):
    field = "offset = {}, size = 4, count = 1, big = false, shown = {{ F['seq'] }}".replace("'", '"')
    (packet,) = dissect_with(field.format(4), field.format(5))
    assert found(packet) != MESSAGES["ACK"][1]


@pytest.mark.mutant
def test_errors_of_the_dissector_are_noticed(dissect_with):
    (packet,) = dissect_with(ENTRY, f"{ENTRY} error('x')")
    assert packet.reports
    with pytest.raises(RuntimeError, match="tshark failed"):
        dissect_with(ENTRY, f"error('x') {ENTRY}")


def test_a_machine_without_tshark_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="apt-get install"):
        tshark.tshark_program()

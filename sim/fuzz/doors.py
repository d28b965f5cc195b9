"""The doors of iswitch for bytes that others have made: datagrams, captures, files, options.

Each door has a name, the errors that it may raise, and first inputs for a fuzzer. Every other error is a mistake.
"""

import json
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from iswitch.capture.command import explain, read_messages
from iswitch.capture.pcap import CaptureError
from iswitch.config import Replay
from iswitch.control.exchange import Exchange
from iswitch.control.inspection import awaited_ranks, read_job, read_member, read_progress, read_slot
from iswitch.control.registers import RegisterReader
from iswitch.driver.address import parse_address
from iswitch.driver.ethernet import BurstHeader, Endpoints, payload_of
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError, handle_notice
from iswitch.driver.result_frames import ResultFrames, datagrams
from iswitch.driver.segment_ledger import SegmentLedger
from iswitch.errors import IswitchError, SwitchUnreachableError
from iswitch.estimate.command import parse_size
from iswitch.plan.allreduce.files.json_file import from_json as schedule_from_json
from iswitch.plan.allreduce.files.msccl import AlgorithmError
from iswitch.plan.allreduce.files.msccl import parse as parse_msccl
from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.files import read_fabric, read_topology
from iswitch.plan.topology.graph_file import to_graphml, to_json
from iswitch.plan.topology.yaml_file import parse_yaml
from iswitch.replay.messages import parse as parse_replay_message
from iswitch.replay.parameters import Parameters
from iswitch.replay.session import Broadcast
from iswitch.report.training import TrainingFilesError, read_trainings
from iswitch.switch.parents import parse_parent
from iswitch.switch.replay import parse_replay
from iswitch.wire import ACK, HEADER, REGISTERS_PER_READ, Action, Format, Mode, Type, version_type
from sim.bench.every_message import messages as every_message

__all__ = ["DOORS", "Door"]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "plan_two_racks.yaml"
MEMBER = Membership(
    job=1,
    key=2,
    world=3,
    threshold=3,
    format=Format.WINDOW64,
    fraction=44,
    elements=8,
    mode=Mode.QUARANTINE,
    nonce=7,
    wanted=1,
    member=1,
    token=0x11223344,
    job_token=0x55667788,
    epoch=9,
    window=4,
    first_seq=0xFFFFFFF0,
)
ENDS = Endpoints(bytes([10, 0, 0, 7]), 40000, bytes([10, 0, 0, 1]), 26963)


class Door(NamedTuple):
    """A door.

    Attributes
    ----------
    enter : callable
        Gives bytes to the door. Raises AssertionError if what comes out breaks a promise.
    errors : tuple of type
        What the door may raise, according to its docstring.
    first : callable
        Returns first inputs.
    """

    enter: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    first: Callable[[], list[bytes]]


class Heard:
    """A transport on which one burst comes in. Its clock runs while the driver waits."""

    fault, refused = "", False

    def __init__(self, data: bytes, segment_bytes: int) -> None:
        self.data, self.segment_bytes, self.clock = data, segment_bytes, 0.0

    def randbits(self, bits: int) -> int:
        return 5

    def now(self) -> float:
        return self.clock

    def send(self, burst: Any, segment_bytes: int) -> None:
        pass

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if self.clock:
            self.clock += timeout_s
            return 0, 0
        self.clock = 1e-3
        into[: len(self.data)] = self.data
        return len(self.data), self.segment_bytes


def heard(data: bytes, segment_bytes: int) -> Any:
    """Return as much of a transport as the doors use."""
    return Heard(data, segment_bytes)


def answer(data: bytes) -> None:
    size = 1 + int.from_bytes(data[:1])
    found = Exchange(heard(data[1:], size), timeout_s=0.2).request(Action.READ)
    assert int(found.header["seq"]) == 6 and int(found.body["nonce"]) == 5


def answers() -> list[bytes]:
    header, body = np.zeros(1, HEADER), np.zeros(1, ACK)
    header["version_type"], header["seq"] = version_type(Type.ACK), 6
    body["action"], body["nonce"] = Action.READ, 5
    one = header.tobytes() + body.tobytes()
    return [bytes([len(one) - 1]) + one, bytes([len(one) - 1]) + 2 * one, bytes([9]) + one[:-1]]


def results(data: bytes) -> None:
    size, octets = 1 + int.from_bytes(data[:1]), np.frombuffer(data[1:], np.uint8)
    frames, ledger = ResultFrames(), SegmentLedger(16)
    frames.begin(MEMBER, ledger)
    for records in datagrams(octets, len(octets), size):
        found, others = frames.parse(records, 8)
        for each in found:
            assert len(each.indices) == len(each.records) and each.first >= ledger.low and each.last < 8
        for header in [] if others is None else others:
            handle_notice(header, MEMBER)


def result_bursts() -> list[bytes]:
    headers = np.zeros(4, HEADER)
    headers["version_type"], headers["job"], headers["epoch"] = version_type(Type.RESULT), MEMBER.job, MEMBER.epoch
    headers["seq"] = (MEMBER.first_seq + np.arange(4)) % 2**32
    headers["member"], headers["format_flags"], headers["token"] = 255, MEMBER.format, MEMBER.job_token
    burst = b"".join(header.tobytes() + bytes(12) for header in headers)
    notice = headers[:1].copy()
    notice["version_type"], notice["token"], notice["count"] = version_type(Type.NOTICE), MEMBER.token, 3
    return [bytes([HEADER.itemsize + 11]) + burst, bytes([HEADER.itemsize - 1]) + notice.tobytes()]


def ethernet(data: bytes) -> None:
    segment = BurstHeader.parse(data[:10]).segment_bytes if len(data) >= 10 else 0
    assert 0 <= segment < 1 << 16
    for checked in (False, True):
        found = payload_of(memoryview(data[10:]), ENDS, checked=checked)
        assert not isinstance(found, memoryview) or len(found) <= len(data)


def frames() -> list[bytes]:
    addresses = ENDS.peer_ip + ENDS.ip
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 50, 0, 0x4000, 64, 17, 0x2673) + addresses
    return [bytes(10) + bytes(12) + b"\x08\x00" + ip + struct.pack(">4H", 26963, 40000, 30, 0) + bytes(22)]


class Registers(RegisterReader):
    """A switch whose registers have the values of some bytes, over and over."""

    def __init__(self, data: bytes) -> None:
        super().__init__(heard(b"", 1))
        self.values = np.frombuffer((data + bytes(32))[: max(32, len(data) & ~3)], "<u4")

    def read(self, address: int, *, job: int = 0, timeout_s: float | None = None) -> Any:
        body = np.zeros((), ACK)
        body["registers"] = np.take(self.values, address + np.arange(REGISTERS_PER_READ), mode="wrap")
        return type("Read", (), {"body": body})()


def registers(data: bytes) -> None:
    control = Registers(data)
    job = read_job(control, 1)
    read_member(control, 1, 2)
    read_slot(control, 1, 5, 4)
    awaited_ranks(control, job, read_progress(control, job), 4)
    control.switch_info()


def capture(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(data)
        file.flush()
        found = read_messages([Path(file.name)])
        for line in explain(found, job=None, seq=None):
            assert line is not None
        for message in found[:2]:
            list(explain(found, job=int(message.header["job"]), seq=int(message.header["seq"])))


def captures() -> list[bytes]:
    payloads = [payload for _, payload, _ in every_message()][:24]
    classic = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    blocks = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    blocks += struct.pack("<IIHHIHHB3xHHI", 1, 32, 101, 0, 0, 9, 1, 9, 0, 0, 32)
    for number, payload in enumerate(payloads):
        udp = struct.pack(">4H", 26963, 40000, 8 + len(payload), 0) + payload
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, ENDS.peer_ip, ENDS.ip) + udp
        classic += struct.pack("<4I", 1, number, len(ip), len(ip)) + ip
        padded = ip + bytes(-len(ip) % 4)
        length = 32 + len(padded)
        blocks += struct.pack("<7I", 6, length, 0, 0, number, len(ip), len(ip)) + padded + struct.pack("<I", length)
    return [classic[:2000], blocks[:2000], classic, blocks]


def replay_message(data: bytes) -> None:
    found = parse_replay_message(memoryview(data))
    assert found is None or len(found.rows) < len(data)


class Heards(NamedTuple):
    """As much of a `Session` as `Parameters` reads."""

    broadcasts: list[Broadcast]
    table: int = 0
    config: Replay = Replay(log_bytes=1 << 16)


def parameters(data: bytes) -> None:
    """The latest version in broadcasts of other clients."""
    kept: Any = Heards([Broadcast(0, 1, 64 * at, data[at : at + 128]) for at in range(0, len(data), 128)])
    reader = Parameters.__new__(Parameters)
    reader.session = kept
    found = reader._from_broadcasts(0)
    assert found is None or len(found[1]) <= len(data)


def published() -> list[bytes]:
    return [struct.pack("<IIQ16s32s", 0x50574969, 1, size, bytes(16), bytes(32)) + bytes(size) for size in (0, 64, 300)]


def in_file(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    def enter(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            return read(path)

    return enter


def training(path: Path) -> None:
    read_trainings(path.parent)


def as_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def parent(text: str) -> None:
    with patch("socket.gethostbyname", lambda host: socket.inet_ntoa(socket.inet_aton(host))):  # asks no name server
        parse_parent(text, port=1)


def topologies(kind: str) -> Callable[[], list[bytes]]:
    def first() -> list[bytes]:
        texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("plan_*.yaml"))]
        if kind == "yaml":
            return [text.encode() for text in texts]
        small = parse_yaml(EXAMPLE.read_text(encoding="utf-8"))
        if kind == "json":
            return [to_json(small).encode()]
        with tempfile.NamedTemporaryFile(suffix=".graphml") as file:
            to_graphml(small, Path(file.name))
            return [Path(file.name).read_bytes()]

    return first


MSCCL = b"""<algo name="a" nchunksperloop="1" nchannels="1" proto="Simple" ngpus="1"
 coll="allreduce" inplace="1" outofplace="0" redop="sum" minBytes="0" maxBytes="9223372036854775807">
<gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0"/></algo>"""
SCHEDULE = {"format": "iswitch-allreduce", "version": 1, "name": "a", "hosts": ["h0", "h1"]}
FLOW = {"chunk": 0, "path": ["h0", "s", "h1"], "op": "merge", "origin": "h0"}

DOORS: dict[str, Door] = {
    "answer": Door(answer, (SwitchUnreachableError,), answers),
    "results": Door(results, (MembershipRejectedError, CollectiveConflictError), result_bursts),
    "ethernet": Door(ethernet, (ValueError,), frames),
    "registers": Door(registers, (IswitchError,), lambda: [bytes(64), np.arange(32, dtype="<u4").tobytes()]),
    "capture": Door(capture, (CaptureError,), captures),
    "replay_message": Door(replay_message, (), lambda: [p for _, p, _ in every_message() if p[0] & 15 >= Type.ANSWER]),
    "parameters": Door(parameters, (), published),
    "topology_yaml": Door(in_file(read_fabric, "t.yaml"), (TopologyError,), topologies("yaml")),
    "topology_json": Door(in_file(read_topology, "t.json"), (TopologyError,), topologies("json")),
    "topology_graphml": Door(in_file(read_topology, "t.graphml"), (TopologyError,), topologies("graphml")),
    "schedule": Door(
        as_text(schedule_from_json),
        (ValueError,),
        lambda: [json.dumps(SCHEDULE | {"aggregating": ["s"], "rounds": [[FLOW]]}).encode()],
    ),
    "msccl": Door(as_text(parse_msccl), (AlgorithmError,), lambda: [MSCCL]),
    "training": Door(in_file(training, "summary.json"), (TrainingFilesError,), lambda: [b'{"updates": 1}']),
    "parent": Door(as_text(parent), (ValueError,), lambda: [b"0=10.0.0.9:27000/0-3,7"]),
    "replay_sizes": Door(as_text(parse_replay), (ValueError,), lambda: [b"capacity=65536,log_bytes=1048576"]),
    "address": Door(as_text(parse_address), (ValueError,), lambda: [b"10.0.0.1:27000", b"switch"]),
    "size": Door(as_text(parse_size), (ValueError,), lambda: [b"6.41MB"]),
}

"""The frames in `tests/vectors`, typed by hand from `docs/protocol.md`, against everything that reads or writes frames:
numpy records, the model's composer and the bench's client. scapy and plain integers judge the checksums.
"""

from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import parse as parse_to_switch
from iswitch.golden.ingress.parse import parse_control
from iswitch.golden.interface.message import Message, Source, SwitchAddress
from iswitch.wire import (
    ACK,
    CONTROL,
    FRAME,
    FRAME_BYTES,
    HEADER,
    RESULT_FRAME,
    RESULT_HEADER,
    TAIL,
    Action,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    JobState,
    MemberState,
    Mode,
    Outcome,
    Reason,
    ResultFlag,
    Type,
    ones_complement_sum,
    result_identity,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, parse

VECTORS = Path(__file__).parents[2] / "vectors"
NAMES = (
    "contribution",
    "contribution_bf16",
    "result",
    "result_fp16",
    "receipt",
    "notice",
    "join",
    "ack",
    "claim",
    "grant",
    "refuse",
)
FROM_SWITCH = ("result", "result_fp16", "notice", "ack", "grant", "refuse")

COLLECTIVE, DIGEST = Collective(position=1234, kind=CollectiveKind.ALLREDUCE, segments=3), 0x5A17
SEQ, TOKEN, NONCE, KEY = 0x89ABCDEC, 0xCAFEBABF, 0x0102030405060708, 0x1122334455667788
JOB_TOKEN, CHALLENGE = 0x0D0E0A0B, 0x71727374
OWN = SwitchAddress(SWITCH_MAC, SWITCH_IP)
WORKER = Source(2, bytes.fromhex("020000000003"), 0x0A000067, 40003)
NUMBERS = {
    "contribution": np.array([1.0, -2.5], "<f4"),
    "contribution_bf16": np.array([0x3F80, 0xC020], "<u2"),
    "result": np.array([2.0, 0.5], "<f4"),
    "result_fp16": np.array([2.0, 0.5], "<f2"),
}


def vector(name: str) -> bytes:
    lines = (VECTORS / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def header(type: Type, record: np.dtype = HEADER, **fields: int) -> dict[str, int]:
    """Values of our 22 bytes, zero unless named."""
    common = {"version_type": 0x20 | type, "job": 1, "epoch": 0x1234, "seq": SEQ, "member": 2, "token": TOKEN}
    return dict.fromkeys(record.names, 0) | common | fields


HEADERS = {
    "contribution": header(Type.CONTRIBUTION, count=DIGEST, behind=3, format_flags=0x31, members=COLLECTIVE.word),
    "contribution_bf16": header(Type.CONTRIBUTION, count=DIGEST, behind=3, format_flags=0x35, members=COLLECTIVE.word),
    "result_fp16": header(
        Type.RESULT, RESULT_HEADER, member=255, format_flags=0x56, tainted=2, members=5, token=JOB_TOKEN
    ),
    "result": header(Type.RESULT, RESULT_HEADER, member=255, format_flags=0x51, tainted=2, members=5, token=JOB_TOKEN),
    "receipt": header(Type.RECEIPT, format_flags=0x80, behind=2),
    "notice": header(Type.NOTICE, epoch=0x1235, count=Reason.EPOCH, behind=0x0F4C),
    "join": header(Type.CONTROL, epoch=0, seq=7),
    "ack": header(Type.ACK, seq=7, behind=0xFFE9),
    "claim": header(Type.CLAIM, seq=5, members=0x89ABCD80),
    "grant": header(Type.GRANT, seq=0x89ABCD90, member=255, count=2, behind=0x7D48, members=5, token=JOB_TOKEN),
    "refuse": header(Type.REFUSE, seq=5, behind=0x0F91, members=0x89ABCDA0),
}
BODIES = {
    "join": (
        CONTROL,
        {
            "action": Action.JOIN,
            "format": Format.WINDOW64,
            "fraction": -10,
            "world": 3,
            "threshold": 2,
            "elements": 352,
            "mode": Mode.PROPAGATE,
            "key": KEY,
            "nonce": NONCE,
            "evict_us": 10_000_000,
            "job_token": JOB_TOKEN,
            "challenge": CHALLENGE,
        },
    ),
    "ack": (
        ACK,
        {
            "action": Action.JOIN,
            "state": JobState.RUNNING,
            "standing": MemberState.LIVE,
            "window": 64,
            "elements": 352,
            "world": 3,
            "live": 3,
            "first_seq": 0x89ABCD80,
            "nonce": NONCE,
            "threshold": 2,
            "members": 8,
            "registers": [CHALLENGE + 1, JOB_TOKEN, 0, 0, 0, 0, 0, 0],
        },
    ),
    "result": (TAIL, {"identity": 0x6FC5, "complement": 0x2D3D}),
    "result_fp16": (TAIL, {"identity": 0x6FC5, "complement": 0x2D3F}),
}


def read_by_records(name: str, frame: bytes) -> None:
    """Every byte lies in a field, and every field has the value that the text says."""
    addresses = [SWITCH_MAC, WORKER.mac, 0x0A000067, 0x0A000001, 40003, 26963]
    if name in FROM_SWITCH:
        addresses = [addresses[k] for k in (1, 0, 3, 2, 5, 4)]
    got = np.frombuffer(frame, RESULT_FRAME if name.startswith("result") else FRAME, 1)[0]
    assert [
        got["eth_dst"].tobytes(),
        got["eth_src"].tobytes(),
        got["ip_src"],
        got["ip_dst"],
        got["udp_src"],
        got["udp_dst"],
    ] == addresses
    assert [
        got[field]
        for field in ("eth_type", "ip_version_ihl", "ip_tos", "ip_id", "ip_fragment", "ip_ttl", "ip_protocol")
    ] == [0x0800, 0x45, 0, 0, 0x4000, 64, 17]
    assert (got["ip_length"], got["udp_length"]) == (len(frame) - 14, len(frame) - 34)
    assert {field: int(got[field]) for field in HEADERS[name]} == HEADERS[name]
    rest = frame[FRAME_BYTES:]
    if name in NUMBERS:
        numbers = NUMBERS[name]
        assert np.frombuffer(rest, numbers.dtype, numbers.size).tolist() == numbers.tolist()
        rest = rest[numbers.nbytes :]
    if name in BODIES:
        record, values = BODIES[name]
        want = np.zeros(1, record)
        for field, value in values.items():
            want[field] = value
        assert np.frombuffer(rest, record)[0] == want[0]
        rest = b""
    assert rest == b""
    assert checksums_are_scapys(frame)


def checksums_are_scapys(frame: bytes) -> bool:
    packet = Ether(frame)
    del packet[IP].chksum, packet[UDP].chksum
    return bytes(packet) == frame


def built_by_us(name: str) -> bytes:
    """The frame from the composer of the golden model, or from the bench's client."""
    client = Client(WORKER.mac, bytes([10, 0, 0, 103]), WORKER.udp_port, WORKER.port, 1, KEY, nonce=NONCE)
    client.member, client.token, client.epoch = 2, TOKEN, 0x1234
    head = {"job": 1, "epoch": 0x1234, "seq": SEQ}
    match name:
        case "contribution" | "contribution_bf16":
            flags = ContributionFlag.RETRANSMISSION | ContributionFlag.BOUNDARY
            return client.contribution(
                SEQ,
                NUMBERS[name],
                behind=3,
                flags=flags,
                format=Format.BF16 if name.endswith("bf16") else Format.WINDOW64,
                collective=COLLECTIVE.word,
                digest=DIGEST,
            )
        case "receipt":
            return client.receipt(SEQ, behind=2, want=True)
        case "claim":
            return client.claim(5, 0x89ABCD80)
        case "join":
            client.epoch = 0
            return client.join(
                seq=7,
                world=3,
                threshold=2,
                elements=352,
                fraction=-10,
                mode=Mode.PROPAGATE,
                evict_us=10_000_000,
                job_token=JOB_TOKEN,
                challenge=CHALLENGE,
            )
        case "result" | "result_fp16":
            payload = compose.result(
                **head,
                format=Format.FP16 if name.endswith("fp16") else Format.WINDOW64,
                flags=ResultFlag.PARTIAL | ResultFlag.TAINTED,
                members=5,
                tainted=2,
                token=JOB_TOKEN,
                identity=result_identity(COLLECTIVE.word, DIGEST),
                elements=NUMBERS[name].view(f"<u{NUMBERS[name].itemsize}"),
            )
        case "notice":
            payload = compose.notice(**head | {"epoch": 0x1235}, member=2, token=TOKEN, reason=Reason.EPOCH)
        case "grant":
            payload = compose.grant(job=1, epoch=0x1234, base=0x89ABCD90, members=5, token=JOB_TOKEN)
        case "refuse":
            payload = compose.refuse(job=1, epoch=0x1234, k=5, member=2, token=TOKEN, base=0x89ABCDA0)
        case _:
            payload = compose.ack(**head | {"seq": 7}, member=2, token=TOKEN, **BODIES["ack"][1])
    return compose.frame(OWN, WORKER, payload)


@pytest.mark.parametrize("name", NAMES)
def test_records_read_the_vector(name):
    read_by_records(name, vector(name))


@pytest.mark.parametrize("name", NAMES)
def test_we_build_the_vector(name):
    assert built_by_us(name) == vector(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_byte_fails(name):
    frame = vector(name)
    for at in range(len(frame)):
        flipped = frame[:at] + bytes([frame[at] ^ 0xFF]) + frame[at + 1 :]
        with pytest.raises(AssertionError):
            read_by_records(name, flipped)


@pytest.mark.parametrize("name", FROM_SWITCH)
def test_the_client_reads_the_vector(name):
    reply = parse(vector(name))
    assert (reply.type, reply.header["seq"]) == (Type[name.partition("_")[0].upper()], HEADERS[name]["seq"])
    assert ones_complement_sum(vector(name)[42:]) == 0xFFFF
    if name in NUMBERS:
        assert reply.numbers.view(NUMBERS[name].dtype).tolist() == NUMBERS[name].tolist()
        assert reply.tail["identity"] == result_identity(COLLECTIVE.word, DIGEST)
    if name == "ack":
        assert (reply.reason, reply.ack["first_seq"]) == (Reason.DONE, 0x89ABCD80)


def test_the_model_reads_the_vectors():
    contribution = parse_to_switch(2, vector("contribution"), SWITCH_IP)
    assert contribution == Message(
        Type.CONTRIBUTION,
        WORKER,
        1,
        0x1234,
        SEQ,
        2,
        3,
        Format.WINDOW64,
        3,
        TOKEN,
        np.array([1.0, -2.5], "<f4").tobytes(),
        detail=DIGEST,
        members=COLLECTIVE.word,
    )
    assert Collective.from_word(contribution.collective) == COLLECTIVE and contribution.digest == DIGEST
    asked = parse_control(parse_to_switch(2, vector("join"), SWITCH_IP))
    assert (asked.action, asked.member, asked.token, asked.nonce, asked.key) == (Action.JOIN, 2, TOKEN, NONCE, KEY)
    assert asked.settings == (3, 2, Format.WINDOW64, -10, 352, Mode.PROPAGATE, 0, 10_000_000, 0, 0)
    asked = parse_to_switch(2, vector("claim"), SWITCH_IP)
    assert (asked.type, asked.seq, asked.members) == (Type.CLAIM, 5, 0x89ABCD80)


@pytest.mark.parametrize("name", ["contribution", "receipt", "join", "claim"])
def test_the_model_refuses_a_flipped_byte_behind_the_addresses(name):
    frame = vector(name)
    for at in range(42, len(frame)):
        flipped = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
        assert parse_to_switch(2, flipped, SWITCH_IP) in (Outcome.UDP_CHECKSUM, Outcome.VERSION)


@pytest.mark.parametrize("size", [*range(1, 20), 1408, 1409])
def test_sum_of_words_is_that_of_plain_integers(size):
    """RFC 1071: end-around carry is arithmetic modulo 0xFFFF, with 0xFFFF in place of 0 unless all is zero."""
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    value = int.from_bytes(data + b"\0" * (size & 1), "big")
    assert ones_complement_sum(data) == (value % 0xFFFF or (0xFFFF if value else 0))
    assert ones_complement_sum(bytes(size)) == 0
    assert ones_complement_sum(b"\xff" * (2 * size)) == 0xFFFF


def test_a_checksum_of_zero_is_sent_as_ones():
    """RFC 768: 0 would mean "none". Adding the checksum to the port makes the sum 0xFFFF."""
    payload = compose.notice(job=0, epoch=0, seq=0, member=0, token=0, reason=Reason.JOB)
    checksum = int.from_bytes(compose.frame(OWN, WORKER._replace(udp_port=1), payload)[40:42], "big")
    frame = compose.frame(OWN, WORKER._replace(udp_port=1 + checksum), payload)
    assert frame[40:42] == b"\xff\xff"
    assert parse(frame).reason == Reason.JOB

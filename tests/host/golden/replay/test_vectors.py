"""The frames `tests/vectors/replay_*.hex`, put down field by field from `docs/replay.md` with sums of plain integers:
one conversation, which the bench's client and the golden switch must repeat byte by byte. scapy judges the
checksums."""

from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from iswitch.config import Config, Replay
from iswitch.wire.replay import UNIT_BYTES
from sim.bench.replay_bench import ReplayBench
from sim.bench.replay_client import ReplayClient

VECTORS = Path(__file__).parents[3] / "vectors"
REPLAY = Replay(
    tables=1,
    capacity=32,
    priority_bits=16,
    sessions=2,
    cached_answers=2,
    samples_per_request=16,
    record_bytes=64,
    log_bytes=4096,
)
REQUESTS = {
    "open": "opened",
    "write": "written",
    "add": "added",
    "sample": "sampled",
    "update": "updated",
    "fetch": "data",
}
"""With their answers, in order."""


def vector(name: str) -> bytes:
    lines = (VECTORS / f"replay_{name}.hex").read_text(encoding="utf-8").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def counting(first: int) -> bytes:
    return bytes((first + k) % 256 for k in range(UNIT_BYTES))


def client() -> ReplayClient:
    made = ReplayClient(0, port=2, nonce=0x01020304CAFEBABF)
    made.mac, made.ip, made.udp_port = bytes.fromhex("020000000003"), bytes([10, 0, 0, 103]), 40003
    made.session, made.token = 1, 0xCAFEBABF
    return made


def test_the_client_sends_the_vectors():
    asks = client()
    assert {
        "open": asks.open(session=0, seq=7, challenge=90),
        "write": asks.write(5, 3, bytes(0xC0 + k for k in range(64)), oldest=2),
        "add": asks.add(6, [(0, counting(0)), (300, counting(128))], ticket=1),
        "sample": asks.sample(7, 3, 2 << 64 | 1, items=2, fragments=1),
        "update": asks.update(8, [(33, 20), (31, 7)]),
        "fetch": asks.fetch([33, 31], seq=0x89ABCDEF),
    } == {name: vector(name) for name in REQUESTS}


def test_the_switch_answers_with_the_vectors():
    bench = ReplayBench(Config(replay=REPLAY))
    service = bench.switch.service
    service.challenge = 90
    service.sessions[0] = service.sessions[0]._replace(open=True, nonce=1)
    service.sessions[1] = service.sessions[1]._replace(next=3, written=3)
    for name, answer in REQUESTS.items():
        assert [frame for _, frame in bench.send(client(), vector(name))] == [vector(answer)], name


@pytest.mark.parametrize("name", [*REQUESTS, *REQUESTS.values()])
def test_scapy_finds_the_vectors_sound(name):
    frame = vector(name)
    again = Ether(frame)
    for layer in (IP, UDP):
        del again[layer].chksum
    assert bytes(again) == frame and again[IP].len == len(frame) - 14 and again[UDP].len == len(frame) - 34

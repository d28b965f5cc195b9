"""Virtual ports: the frames a network card would send, trains, captures, and the command line."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from iswitch.config import Config
from iswitch.wire import UDP_PORT
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap
from sim.bench.client import SWITCH_IP, SWITCH_MAC
from sim.emulator.engine import Board
from sim.emulator.faults import Faults, Passed, Rates
from sim.emulator.hub import ECHO
from sim.emulator.pcap import Capture
from sim.emulator.udp import Card, Client, Emulator, VirtualPort

CLIENT = Client(bytes([127, 0, 0, 1]), 40123)
ROOT = Path(__file__).parents[3]


def recomputed(frame: bytes) -> bytes:
    """The frame with checksums as scapy computes them, without padding."""
    packet = Ether(frame)
    del packet[IP].chksum, packet[UDP].chksum
    packet[UDP].remove_payload()
    return bytes(packet / frame[42:34 + packet[UDP].len])


def back(frame: bytes) -> bytes:
    """What the switch would send to the frame's sender, by scapy."""
    packet = Ether(frame)
    reply = Ether(src=packet.dst, dst=packet.src) / IP(src=packet[IP].dst, dst=packet[IP].src) / UDP(
        sport=packet[UDP].dport, dport=packet[UDP].sport)
    return bytes(reply / frame[42:34 + packet[UDP].len])


@pytest.mark.parametrize("payload", [b"", b"a", b"ab", bytes(17), bytes(18), b"\xff" * 86, bytes(range(255)) * 5])
def test_card_builds_what_scapy_builds(payload: bytes) -> None:
    frame = Card(SWITCH_MAC, SWITCH_IP).wrap(payload, CLIENT)
    assert len(frame) == max(60, 42 + len(payload)) and not any(frame[42 + len(payload):])
    assert frame[:42 + len(payload)] == recomputed(frame)
    packet = Ether(frame)
    assert (packet.dst, packet.src) == (SWITCH_MAC.hex(":"), CLIENT.mac.hex(":"))
    assert (packet[IP].src, packet[IP].dst) == ("127.0.0.1", "10.0.0.1")
    assert (packet[UDP].sport, packet[UDP].dport) == (40123, UDP_PORT)


def test_a_checksum_that_comes_to_zero_is_sent_as_ones() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    checksum = card.wrap(b"\0\0", CLIENT)[40:42]
    assert card.wrap(checksum, CLIENT)[40:42] == b"\xff\xff"


def test_card_takes_off_what_the_switch_puts_on() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    for payload in (b"", b"a", b"odd", bytes(range(256))):
        assert card.unwrap(back(card.wrap(payload, CLIENT))) == (CLIENT.address, payload)


def test_a_card_ignores_what_is_wrong_or_not_its_own() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    good = back(card.wrap(b"payload", CLIENT))
    patched = lambda at, value: good[:at] + bytes([value]) + good[at + 1:]
    assert card.unwrap(patched(12, 0x86)) == card.unwrap(patched(23, 6)) == card.unwrap(b"") == "not UDP over IPv4"
    assert card.unwrap(patched(5, good[5] ^ 1)) == "not for a client of this port"
    assert card.unwrap(patched(39, 99)) == card.unwrap(good[:44]) == "bad length"
    assert card.unwrap(patched(22, 1)) == "bad IPv4 checksum"
    assert card.unwrap(patched(44, good[44] ^ 4)) == "bad UDP checksum"
    assert card.unwrap(good[:40] + b"\0\0" + good[42:]) == (CLIENT.address, b"payload")


def test_clients_have_macs_of_their_own() -> None:
    clients = [Client(bytes([127, 0, 0, host]), number) for host in (1, 2) for number in (1, 256, 40000)]
    assert len({client.mac for client in clients}) == 6 and all(client.mac[0] == 2 for client in clients)


@pytest.mark.parametrize("sizes", [[100] * 200, [0, 0, 5, 5, 3, 5, 9, 9], [1400] * 50 + [7], [9000] * 20, [1, 0, 1]])
def test_trains_arrive_as_they_were(sizes: list[int]) -> None:
    payloads = [bytes([number & 0xFF]) * size for number, size in enumerate(sizes)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(2)
        card = Card(SWITCH_MAC, SWITCH_IP)
        client = Client(socket.inet_aton("127.0.0.1"), sink.getsockname()[1])
        port = VirtualPort(("127.0.0.1", 0), card, {"rx": Faults.none(), "tx": Faults.none()}, None)
        port.deliver([Passed(back(card.wrap(payload, client)), False) for payload in payloads])
        assert [sink.recv(65536) for _ in payloads] == payloads
        port.deliver([Passed(back(card.wrap(b"x", client)), True)])
        assert port.counts == {"datagrams out": len(payloads), "out, bad FCS": 1}
        # And the other way: what a client sends as one train is taken apart again.
        sink.sendmsg([b"".join([b"t" * 500] * 9), b"end"], [(socket.IPPROTO_UDP, 103, (500).to_bytes(2, "little"))], 0,
                     port.address)
        port.drain(0, 100)
        parts = [b"t" * 500] * 9 + [b"end"]
        assert [frame.data for frame in port.pending] == [card.wrap(part, client) for part in parts]
        port.close()


def test_captures_are_read_by_scapy(tmp_path: Path) -> None:
    frames = [Card(SWITCH_MAC, SWITCH_IP).wrap(bytes(size), CLIENT) for size in (0, 100, 1400)]
    with Capture(tmp_path / "x.pcap") as capture:
        for number, frame in enumerate(frames):
            capture.write(frame, 1_700_000_000_123_456_789 + number)
    read = rdpcap(str(tmp_path / "x.pcap"))
    assert [bytes(packet) for packet in read] == frames
    assert [int(packet.time * 1_000_000_000) for packet in read] == [1_700_000_000_123_456_789 + k for k in range(3)]


@contextmanager
def serving(emulator: Emulator) -> Iterator[None]:
    thread = threading.Thread(target=emulator.serve)
    thread.start()
    try:
        yield
    finally:
        emulator.stop()
        thread.join()


def exchange(address: tuple[str, int], payloads: list[bytes]) -> list[bytes]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(address)
        client.settimeout(5)
        for payload in payloads:
            client.send(payload)
        return [client.recv(65536) for _ in payloads]


def test_datagrams_go_through_the_board(hubs: Callable[[Config, str], Path], tmp_path: Path) -> None:
    payloads = [bytes([number]) * (5 * number) for number in range(100)]
    with Board(path=hubs(ECHO, "verilator")) as board, Emulator(board, pcap=tmp_path) as emulator, serving(emulator):
        assert exchange(emulator.ports[0].address, payloads) == payloads
        assert exchange(emulator.ports[1].address, payloads) == payloads
    captured = [bytes(packet) for packet in rdpcap(str(tmp_path / "port0.pcap"))]
    assert len(captured) == 300  # 100 in, and the hub sends what enters either port out of both
    assert emulator.ports[0].counts == {
        "datagrams in": 100, "frames into the switch": 100, "frames out of the switch": 200, "datagrams out": 100,
        "out, not for a client of this port": 100}
    assert 0 < emulator.rtl_seconds < emulator.busy_seconds


def test_faults_of_the_wires(hubs: Callable[[Config, str], Path]) -> None:
    wires = {(0, "rx"): Faults(Rates(duplicate=1.0)), (0, "tx"): Faults(Rates(delay_us=50_000)),
             (1, "tx"): Faults(Rates(loss=1.0))}
    with Board(path=hubs(ECHO, "verilator")) as board, Emulator(board, faults=wires) as emulator, serving(emulator):
        begun = time.monotonic()
        assert exchange(emulator.ports[0].address, [b"twice", b"?"]) == [b"twice", b"twice"]
        assert time.monotonic() - begun > 0.05
        with pytest.raises(TimeoutError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(emulator.ports[1].address)
            client.settimeout(0.2)
            client.send(b"never")
            client.recv(10)
    assert wires[1, "tx"].counts["loss"] == 5


def test_a_taken_address_is_named(hubs: Callable[[Config, str], Path]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, Board(path=hubs(ECHO, "verilator")) as board:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="cannot open virtual port 0 at 127"):
            Emulator(board, taken.getsockname())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_line(hubs: Callable[[Config, str], Path], tmp_path: Path, number: signal.Signals) -> None:
    ready, summary = tmp_path / "ready.json", tmp_path / "summary.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "sim.emulator", "--library", str(hubs(ECHO, "verilator")), "--udp-base", "0",
         "--pcap", str(tmp_path), "--ready-file", str(ready), "--summary", str(summary)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        host, port = json.loads(ready.read_text())["ports"][0]
        assert exchange((host, port), [b"hello", b"again"]) == [b"hello", b"again"]
    finally:
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    found = json.loads(summary.read_text())
    assert found["ports"][0]["datagrams out"] == 2 and found["cycles"] > 0 and "did not answer READ" in found["note"]
    assert len(rdpcap(str(tmp_path / "port1.pcap"))) == 2
    assert "datagrams out" in said and "Traceback" not in said


@pytest.mark.parametrize("arguments, message", [
    (["--ports", "1"], "Config ports must be 2 to 16, not 1"),
    (["--loss", "2"], "loss must be 0 to 1"),
    (["--fault", "9:rx:loss=1"], "a fault must be"),
    (["--engine", "abacus"], "engine must be one of"),
])
def test_command_line_wrong(hubs: Callable[[Config, str], Path], arguments: list[str], message: str) -> None:
    if "--engine" not in arguments:
        arguments = [*arguments, "--library", str(hubs(ECHO, "verilator"))]
    done = subprocess.run([sys.executable, "-m", "sim.emulator", "--udp-base", "0", *arguments], cwd=ROOT,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"},
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and message in done.stderr

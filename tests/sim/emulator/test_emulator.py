"""One switch that serves UDP sockets in wall time, as an object and from the command line."""

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
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from iswitch.config import Config
from iswitch.wire import UDP_PORT
from sim.bench.until import until
from sim.emulator.card import Client
from sim.emulator.emulator import Emulator
from sim.emulator.engine import Board
from sim.emulator.faults import Faults, Rates
from sim.emulator.hub import ECHO

ROOT = Path(__file__).parents[3]


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
        assert exchange(emulator.addresses[0], payloads) == payloads
        assert exchange(emulator.addresses[1], payloads) == payloads
    captured = [bytes(packet) for packet in rdpcap(str(tmp_path / "port0.pcap")) if packet.haslayer(Ether)]
    assert len(captured) == 300  # 100 in, and the hub sends what enters either port out of both
    assert emulator.ports[0].counts == {
        "datagrams in": 100,
        "frames into the switch": 100,
        "frames out of the switch": 200,
        "datagrams out": 100,
        "out, not for a client of this port": 100,
    }
    assert 0 < emulator.rtl_seconds < emulator.busy_seconds


def test_faults_of_the_wires(hubs: Callable[[Config, str], Path]) -> None:
    wires = {
        (0, "rx"): Faults(Rates(duplicate=1.0)),
        (0, "tx"): Faults(Rates(delay_us=50_000)),
        (1, "tx"): Faults(Rates(loss=1.0)),
    }
    with Board(path=hubs(ECHO, "verilator")) as board, Emulator(board, faults=wires) as emulator, serving(emulator):
        begun = time.monotonic()
        assert exchange(emulator.addresses[0], [b"twice", b"?"]) == [b"twice", b"twice"]
        assert time.monotonic() - begun > 0.05
        with pytest.raises(TimeoutError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(emulator.addresses[1])
            client.settimeout(0.2)
            client.send(b"never")
            client.recv(10)
    assert wires[1, "tx"].counts["loss"] == 5


def test_a_taken_address_is_named(hubs: Callable[[Config, str], Path]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, Board(path=hubs(ECHO, "verilator")) as board:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="cannot open a UDP socket at 127"):
            Emulator(board, taken.getsockname())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_line(hubs: Callable[[Config, str], Path], tmp_path: Path, number: signal.Signals) -> None:
    ready, summary = tmp_path / "ready.json", tmp_path / "summary.json"
    process, told = started(
        ready,
        "--library",
        str(hubs(ECHO, "verilator")),
        "--udp-base",
        "0",
        "--pcap",
        str(tmp_path),
        "--summary",
        str(summary),
    )
    try:
        host, port = told["ports"][0]
        assert exchange((host, port), [b"hello", b"again"]) == [b"hello", b"again"]
    finally:
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    found = json.loads(summary.read_text())
    assert found["ports"][0]["datagrams out"] == 2 and found["cycles"] > 0 and "did not answer READ" in found["note"]
    assert len(rdpcap(str(tmp_path / "port1.pcap"))) == 2
    assert "datagrams out" in said and "Traceback" not in said


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--ports", "0"], "Config ports must be 1 to 16, not 0"),
        (["--loss", "2"], "loss must be 0 to 1"),
        (["--fault", "9:rx:loss=1"], "a fault must be"),
        (["--engine", "abacus"], "engine must be one of"),
    ],
)
def test_command_line_wrong(hubs: Callable[[Config, str], Path], arguments: list[str], message: str) -> None:
    if "--engine" not in arguments:
        arguments = [*arguments, "--library", str(hubs(ECHO, "verilator"))]
    done = subprocess.run(
        [sys.executable, "-m", "sim.emulator", "--udp-base", "0", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2 and message in done.stderr


def started(ready: Path, *arguments: str) -> tuple[subprocess.Popen[str], dict]:
    """An emulator, and what it says when it is ready. The caller ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sim.emulator", "--ready-file", str(ready), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(ready.exists, 30, unless=lambda: process.poll() is not None)
    except AssertionError:
        process.kill()
        pytest.fail(process.communicate()[1])
    return process, json.loads(ready.read_text())


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    return said


def test_command_line_of_a_fabric(relay: Path, tmp_path: Path) -> None:
    """Three hubs in a row. What enters the first is addressed to its switch, which is made to have the address of a
    client of the last: so this client gets what the links let through."""
    host = f"127.{os.getpid() >> 16 & 0xFF}.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF}"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind((host, UDP_PORT))
        receiver.settimeout(10)
        first = Client(socket.inet_aton(host), UDP_PORT).mac
        process, ready = started(
            tmp_path / "ready.json",
            "--switches",
            "3",
            "--link",
            "0:1-1:0,rate=1e9,delay_us=5",
            "--link",
            "1:1-2:0,loss=0.5",
            "--udp-base",
            "0",
            "--library",
            str(relay),
            "--pcap",
            str(tmp_path),
            "--summary",
            str(tmp_path / "summary.json"),
            "--mac",
            first.hex(":"),
            "--ip",
            host,
            "--fault",
            "2:1:tx:duplicate=1",
            "--seed",
            "1",
        )
        try:
            receiver.sendto(b"here I am", tuple(ready["switches"][2]["ports"][1]))
            bare = Faults(Rates(loss=0.5), seed=2, port=1, direction="tx")
            for number in range(100):
                sender.sendto(bytes([number]), tuple(ready["ports"][0]))
                bare.put(bytes([number]), 0)
            through = [data for data, _ in bare.pop_due(0)]
            assert [receiver.recv(100) for _ in range(2 * len(through))] == [data for data in through for _ in range(2)]
        finally:
            said = ended(process)
    count = lambda mac: (int.from_bytes(first) + mac).to_bytes(6).hex(":")
    assert [(switch["mac"], switch["ip"]) for switch in ready["switches"]] == [
        (count(number), str(IPv4Address(host) + number)) for number in range(3)
    ]
    ports = [switch["ports"] for switch in ready["switches"]]
    assert ports[0][1] is ports[1][0] is ports[1][1] is ports[2][0] is None and ready["ports"] == ports[0]
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["links"]["1:1 to 2:0"] == {"loss": 100 - len(through)} and found["links"]["0:1 to 1:0"] == {}
    assert found["switches"][2]["ports"][1]["datagrams out"] == 2 * len(through)
    assert found["switches"][2]["faults"] == {"port 1 tx": {"duplicate": len(through)}}
    assert [
        len(rdpcap(str(tmp_path / f"switch{switch}port{port}.pcap"))) for switch, port in ((0, 0), (1, 1), (2, 0))
    ] == [100, 100, len(through) + 1]  # with what the receiver has said, which the link loses on its way back
    assert (
        f"switch 1, {IPv4Address(host) + 1}" in said
        and "(a link), 127.0.0.1:" in said
        and "link 1:1 to 2:0: loss" in said
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--switches", "0"], "--switches"),
        (["--link", "0:1"], "a link must be switch:port-switch:port"),
        (["--link", "0:1-1:0"], "a place must be a switch of 0 to 0 and one of its ports, not 1:0"),
        (["--tap", "0"], "a TAP must be [switch:]port=name, not '0'"),
        (["--tap", "0=a", "--tap", "0:0=b"], "a port takes one TAP, and 0:0 has a already"),
        (["--tap", "9=iswnever"], "one of its ports, not 0:9"),
        (["--tap", "0=a/b"], "a TAP's name must be 1 to 15 bytes"),
        (["--switches", "2", "--tap", "0=a"], "a place must be switch:port, not '0'"),
        (["--switches", "2", "--fault", "0:rx:loss=1"], "a fault must be switch:port:rx|tx:kind=value"),
        (["--switches", "2", "--fault", "2:0:rx:loss=1"], "a fault's switch must be 0 to 1, not '2'"),
        (["--switches", "2", "--link", "0:1-1:0", "--fault", "1:0:rx:loss=1"], "set the faults of a link in --link"),
    ],
)
def test_command_line_of_a_fabric_wrong(relay: Path, arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim.emulator", "--udp-base", "0", "--library", str(relay), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr

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
from pathlib import Path

import pytest
from iswitch.config import Config
from scapy.utils import rdpcap
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

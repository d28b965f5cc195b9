"""Real Linux stacks through the compiled switch: ordinary traffic of four network namespaces while a job sums in the
same ports."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from iswitch.config import Config
from sim.bench.until import until
from sim.emulator.tap import Tap

ROOT = Path(__file__).parents[3]
HOST = Path(__file__).with_name("linux_host.py")
SWITCH_IP, SWITCH_MAC = "10.9.0.1", "02:57:49:00:00:01"
HOSTS = range(4)
GRADIENT = 5_000
TCP_BYTES = 10_000_000
COMPILE_SECONDS, STEP_SECONDS = 900, 60
PREFIX = "iswtest"
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1


def ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True, timeout=STEP_SECONDS)


def obstacle() -> str:
    """Why real stacks cannot be plugged in here, or nothing."""
    if not shutil.which("ip"):
        return "there is no `ip` (Debian: iproute2)"
    try:
        Tap().close()
    except OSError as error:
        return str(error)
    made = ip("netns", "add", name := f"{PREFIX}-{os.getpid()}-probe", check=False)
    ip("netns", "del", name, check=False)
    return f"no network namespace can be made: {made.stderr.strip()}" if made.returncode else ""


def sweep() -> None:
    """Namespaces left by a test that was killed; what ran in them died with it."""
    for name in re.findall(rf"^({PREFIX}-\d+-\w+)", ip("netns", "list").stdout, re.MULTILINE):
        if not Path("/proc", name.split("-")[1]).exists():
            ip("netns", "del", name, check=False)


class Network:
    """The switch with a namespace at each port. Everything it starts or makes ends with `stack`."""

    def __init__(self, stack: ExitStack, folder: Path):
        self.stack, self.folder = stack, folder
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "host"), *sys.path]))}
        self.namespaces = [f"{PREFIX}-{os.getpid()}-{host}" for host in HOSTS]
        self.interfaces = [f"isw{os.getpid()}p{host}" for host in HOSTS]
        self.summary = folder / "summary.json"
        for name in self.namespaces:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name, check=False)
        self.emulator = self._serve()
        for host in HOSTS:
            self._plug(host)

    def _serve(self) -> subprocess.Popen[str]:
        ready = self.folder / "ready.json"
        taps = [part for host in HOSTS for part in ("--tap", f"{host}={self.interfaces[host]}")]
        process = self.start(
            [
                sys.executable,
                "-m",
                "sim.emulator",
                *taps,
                "--ip",
                SWITCH_IP,
                "--mac",
                SWITCH_MAC,
                "--ready-file",
                str(ready),
                "--summary",
                str(self.summary),
            ]
        )
        until(ready.exists, COMPILE_SECONDS, unless=lambda: process.poll() is not None and process.communicate())
        return process

    def _plug(self, host: int) -> None:
        name, interface = self.namespaces[host], self.interfaces[host]
        ip("link", "set", interface, "netns", name)
        ip("-n", name, "addr", "add", f"{ipv4(host)}/24", "dev", interface)
        ip("-n", name, "addr", "add", f"{ipv6(host)}/64", "dev", interface, "nodad")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", interface, "up")

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """A process that ends with the network at the latest, even if we are killed."""
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        self.stack.callback(process.communicate)
        self.stack.callback(process.kill)
        return process

    def host(self, host: int, *command: object) -> subprocess.Popen[str]:
        """A command of `linux_host.py` at a host."""
        return self.start(["ip", "netns", "exec", self.namespaces[host], sys.executable, str(HOST), *map(str, command)])

    def answer(self, process: subprocess.Popen[str]) -> dict:
        """What it found, at its end."""
        out, err = process.communicate(timeout=STEP_SECONDS)
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def counters(self, host: int) -> dict[str, int]:
        """The switch's, as the command line of the driver reads them at a host."""
        asking = self.start(
            [
                "ip",
                "netns",
                "exec",
                self.namespaces[host],
                sys.executable,
                "-c",
                "from iswitch.tools.cli import main; main()",
                "counters",
                "--switch",
                SWITCH_IP,
                "--json",
            ]
        )
        out, err = asking.communicate(timeout=STEP_SECONDS)
        assert asking.returncode == 0, err
        return json.loads(out)

    def mac(self, host: int) -> str:
        return json.loads(ip("-n", self.namespaces[host], "-j", "link", "show", self.interfaces[host]).stdout)[0][
            "address"
        ]


def ipv4(host: int) -> str:
    return f"10.9.0.{11 + host}"


def ipv6(host: int) -> str:
    return f"fd09::{11 + host}"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    if why := obstacle():
        pytest.skip(why)
    sweep()
    with ExitStack() as stack:
        yield Network(stack, tmp_path_factory.mktemp("linux"))


class Training:
    """A job of one worker per host, from its first sum on."""

    def __init__(self, network: Network):
        self.network, self.stop = network, network.folder / "stop"
        self.progress = [network.folder / f"rounds{host}" for host in HOSTS]
        self.workers = [
            network.host(host, "train", SWITCH_IP, host, len(HOSTS), GRADIENT, self.stop, self.progress[host])
            for host in HOSTS
        ]
        self.goes_on(since=0)

    def rounds(self) -> int:
        """Sums that some worker has."""
        return max([int(path.read_text() or 0) for path in self.progress if path.exists()], default=0)

    def goes_on(self, since: int) -> int:
        """Waits for a sum after those; returns how many there are."""
        return until(
            lambda: (rounds := self.rounds()) > since and rounds,
            STEP_SECONDS,
            unless=lambda: [worker.communicate() for worker in self.workers if worker.poll() is not None],
        )

    def end(self) -> list[dict]:
        self.stop.touch()
        return [self.network.answer(worker) for worker in self.workers]


def pings(network: Network, address_of, size: int) -> list[dict]:
    """Everybody's of everybody else."""
    asking = [
        network.host(host, "ping", 20, size, *(address_of(other) for other in HOSTS if other != host)) for host in HOSTS
    ]
    return [network.answer(process) for process in asking]


def transfer(network: Network, giver: int, taker: int, address: str, size: int) -> None:
    taking = network.host(taker, "sink", address, 5001)
    assert taking.stdout.readline() == "listening\n"
    giving = network.host(giver, "source", address, 5001, size)
    sent, got = network.answer(giving), network.answer(taking)
    assert sent["bytes"] == got["bytes"] == size and sent["sha256"] == got["sha256"] == sent["told"]


def tagged(network: Network, giver: int, taker: int, tag: int, size: int) -> None:
    taking = network.host(taker, "receive-tagged", network.interfaces[taker])
    giving = network.host(giver, "send-tagged", network.interfaces[giver], network.mac(taker), tag, size)
    found, sent = network.answer(taking), giving.stdout.readline().strip()
    giving.kill()
    assert found == {"tag": tag, "body": sent}


def test_linux_stacks_talk_through_the_switch_while_a_job_sums(network: Network) -> None:
    begun = time.monotonic()
    training = Training(network)
    rounds = training.goes_on(since=0)
    steps = [
        lambda: [network.answer(network.host(2, "ping", 20, 56, SWITCH_IP))],
        lambda: pings(network, ipv4, 56),
        lambda: pings(network, ipv4, 1472),
        lambda: pings(network, ipv6, 1452),
        lambda: transfer(network, 0, 1, ipv4(1), TCP_BYTES),
        lambda: transfer(network, 3, 2, ipv6(2), TCP_BYTES // 10),
        lambda: tagged(network, 1, 3, 7, 1518),
        lambda: tagged(network, 3, 0, 4094, 60),
    ]
    for step in steps:
        for answered in step() or []:
            assert all(answered.values()), answered
        rounds = training.goes_on(since=rounds)
        print(f"{time.monotonic() - begun:.1f} s, {rounds} sums")
    ended = training.end()
    assert {found["wrong"] for found in ended} == {0}
    assert {found["rounds"] for found in ended} == {ended[0]["rounds"]} and ended[0]["rounds"] >= rounds
    counters = network.counters(0)
    segments = -(-(GRADIENT + 1) // Config().elements)
    assert counters["ADDED"] == len(HOSTS) * segments * ended[0]["rounds"]  # each exactly once
    assert counters["ORDINARY"] > TCP_BYTES // 1500
    assert counters["ANSWERED"] >= len(HOSTS) + 1  # each asked for the address, one pinged
    assert not [
        name
        for name in counters
        if name in ("IP_CHECKSUM", "UDP_CHECKSUM", "LENGTH", "ADDRESS", "PORT") or "RX_ERROR" in name
    ]


def test_vlan_interfaces_reach_each_other(network: Network) -> None:
    for host in (0, 2):
        made = ip(
            "-n",
            network.namespaces[host],
            "link",
            "add",
            "link",
            network.interfaces[host],
            "name",
            "vlan7",
            "type",
            "vlan",
            "id",
            "7",
            check=False,
        )
        if made.returncode:
            pytest.skip(f"this kernel has no VLAN interfaces: {made.stderr.strip()}")
        ip("-n", network.namespaces[host], "addr", "add", f"10.9.7.{11 + host}/24", "dev", "vlan7")
        ip("-n", network.namespaces[host], "link", "set", "vlan7", "up")
    assert network.answer(network.host(0, "ping", 20, 1472, "10.9.7.13")) == {"10.9.7.13": True}

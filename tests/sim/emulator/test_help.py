"""Help and messages of the emulator's command line, as a terminal shows them."""

import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from iswitch.config import Config
from sim.bench.help_texts import unprinted
from sim.emulator.__main__ import app
from sim.emulator.card import Card
from sim.emulator.faults import PROBABILITIES, Rates
from sim.emulator.hub import ECHO
from sim.emulator.udp import UdpSocket
from sim.frames.client import SWITCH_IP, SWITCH_MAC


@pytest.mark.parametrize("width", [80, 120])
def test_every_word_of_a_help_text_is_printed(width: int) -> None:
    printed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": str(width)}).output
    assert unprinted(typer.main.get_command(app), printed) == []


def test_words_that_rich_swallows_or_cuts_are_noticed() -> None:
    made = typer.Typer()

    @made.command()
    def main(option: str = typer.Option("", help="needs [plan] and " + "x" * 90)) -> None: ...

    printed = CliRunner().invoke(made, ["--help"], env={"COLUMNS": "80"}).output
    assert unprinted(typer.main.get_command(made), printed) == ["[plan]", "x" * 90]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--mac", "zz"], "--mac must be an address such as 02:57:49:00:00:01, not 'zz'"),
        (["--mac", "02:57:49:00:00"], "--mac must be an address such as"),
        (["--mac", "ff:ff:ff:ff:ff:ff", "--switches", "2"], "--mac must leave room for 2 addresses"),
        (["--ip", "10.0.0"], "--ip must be an address such as 10.0.0.1, not '10.0.0'"),
        (["--ip", "255.255.255.255", "--switches", "2"], "--ip must leave room for 2 addresses"),
        (["--bind", "198.51.100.7"], "this machine has no such address: --bind must be one of its IPv4 addresses"),
        (["--bind", "no-such-host.invalid"], "this machine has no such address: --bind must be"),
        (["--udp-base", "65535"], "--udp-base must be at most"),
        (["--pcap", "/proc/nowhere"], "/proc/nowhere: No such file or directory"),
    ],
)
def test_a_wrong_option_is_a_sentence(hubs: Callable[[Config, str], Path], arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["--library", str(hubs(ECHO, "verilator")), *arguments])
    assert done.exit_code == 2 and message in done.stderr.replace("\n", " ") and "Errno" not in done.stderr


def test_a_port_in_use_names_the_option() -> None:
    card = Card(SWITCH_MAC, SWITCH_IP)
    first = UdpSocket(("127.0.0.1", 0), card)
    try:
        with pytest.raises(OSError, match=r"another program uses this port.*--udp-base") as error:
            UdpSocket(first.address, card)
        assert error.value.errno == errno.EADDRINUSE
    finally:
        first.close()


def test_a_port_that_only_root_may_open_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden(socket.socket):
        def bind(self, _: object) -> None:
            raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("socket.socket", Forbidden)
    with pytest.raises(OSError, match=r"only root may open ports below 1024: choose a higher --udp-base"):
        UdpSocket(("127.0.0.1", 80), Card(SWITCH_MAC, SWITCH_IP))


def test_all_faults_have_words() -> None:
    assert set(PROBABILITIES) == set(vars(Rates())) - {"delay_us", "overtakers"}

"""Mistakes on the command line."""

import socket
import subprocess
import sys

from iswitch import Worker
from iswitch.config import Config
from sim.bench.udp_model import UdpModel
from sim.emulator.card import Card
from sim.emulator.udp import UdpSocket
from sim.frames.client import SWITCH_IP, SWITCH_MAC
from sim.mistakes.scenario import ADDRESS, Mistake

__all__ = ["MISTAKES"]


def _printed(code: str, *arguments: str) -> str:
    """Run a program that fails, and return the last line of its standard error."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode, f"{code!r} should have failed"
    return done.stderr.strip().splitlines()[-1]


def _without(packages: str, code: str, *arguments: str) -> str:
    """Run a program as if some packages were not installed."""
    return _printed(f"import sys; sys.modules.update(dict.fromkeys({packages.split()!r})); {code}", *arguments)


def _ports_in_use() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        try:
            UdpSocket(("127.0.0.1", port), Card(SWITCH_MAC, SWITCH_IP))
        except OSError as error:
            return str(error.strerror).replace(str(port), "27000")  # as the command prints it
    raise AssertionError("two sockets had one port")


def _wrong_key() -> str:
    with UdpModel(Config(ports=1, bus_bits=64)) as model, Worker(model.address(), world=1, key=7):
        said = _printed(
            "from iswitch.tools.cli import main; main()",
            "end-job",
            "--job",
            "0",
            "--key",
            "8",
            "--switch",
            model.address(),
        )
        return said.replace(model.address(), ADDRESS)


MISTAKES = [
    Mistake(
        "`iswitch status` without the extra `cli`",
        lambda: _without("rich typer", "import iswitch.tools.cli"),
        "`pip install '.[cli]'` in a checkout.",
    ),
    Mistake(
        "`iswitch plan FILE` without the extra `plan`",
        lambda: _without("highspy networkx", "from iswitch.tools.cli import main; main()", "plan", "fabric.yaml"),
        "`pip install '.[cli,plan]'` in a checkout.",
    ),
    Mistake(
        "`iswitch end-job --job 0 --key 8` of a job with another key",
        _wrong_key,
        "Pass `--key` with the number that its workers joined with, or `--operator-key`.",
    ),
    Mistake(
        "`make emulator` while another emulator runs",
        _ports_in_use,
        "End the other one, or choose other ports: `make emulator PORT=28000`, and ISWITCH_ADDRESS=127.0.0.1:28000 "
        "for the workers.",
    ),
]

"""The command `iswitch switch`: a software switch on this machine, until Ctrl-C."""

import json
import os
import secrets
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from iswitch.config import Config
from iswitch.errors import IswitchError
from iswitch.switch.parents import parse_parent
from iswitch.switch.server import SwitchServer
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch, config_of

__all__ = ["switch"]

DEFAULT = Config()
OWN_MAC, OWN_IP = bytes.fromhex("020000000001"), bytes(4)
"""Addresses that no datagram shows: the kernel writes the real ones."""
SWITCH, OUTPUT = "The switch", "Running"


def _option(*names: str, panel: str, metavar: str, help: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, help=help, **settings)


def switch(
    ports: Annotated[
        int, _option(panel=SWITCH, metavar="N", help="Number of ports. Any number of workers can share one.")
    ] = DEFAULT.ports,
    members: Annotated[int, _option(panel=SWITCH, metavar="N", help="Workers that a job can have.")] = DEFAULT.members,
    jobs: Annotated[int, _option(panel=SWITCH, metavar="N", help="Jobs at the same time.")] = DEFAULT.jobs,
    window: Annotated[
        int, _option(panel=SWITCH, metavar="N", help="Segments that a worker can have in flight.")
    ] = DEFAULT.window,
    elements: Annotated[int, _option(panel=SWITCH, metavar="N", help="Most elements in a segment.")] = DEFAULT.elements,
    bind: Annotated[
        str, _option(panel=SWITCH, metavar="HOST", help="IPv4 address at which the ports listen.")
    ] = "127.0.0.1",
    udp_base: Annotated[
        int,
        _option(
            panel=SWITCH,
            metavar="PORT",
            min=0,
            max=65535,
            help="UDP port of port 0; the other ports follow. 0: any free ones.",
        ),
    ] = 27000,
    parent: Annotated[
        list[str] | None,
        _option(
            panel=SWITCH,
            metavar="JOB=HOST:PORT/RANKS",
            help="Make this switch a leaf of another one in a job: 0=10.0.0.9:27000/0-3,7 for the ranks 0 to 3 and 7. "
            "May be repeated.",
        ),
    ] = None,
    operator_key: Annotated[
        int,
        _option(
            panel=SWITCH,
            metavar="KEY",
            min=0,
            help="A key that ends any job (`iswitch end-job`), and that all switches of a tree share; 0 for none.",
        ),
    ] = 0,
    ready_file: Annotated[
        Path | None,
        _option(
            panel=OUTPUT,
            metavar="FILE",
            help="Write the addresses of the ports as JSON, as soon as the sockets are open.",
        ),
    ] = None,
    summary: Annotated[
        Path | None, _option(panel=OUTPUT, metavar="FILE", help="Write the counters as JSON at the end.")
    ] = None,
) -> None:
    """Run a software switch on this machine until Ctrl-C.

    Each port is a UDP socket. Workers need nothing but the address of one.
    """
    console = Console(stderr=True)
    try:
        config = config_of(ports=ports, members=members, jobs=jobs, window=window, elements=elements)
        # A switch that is started again with its old seed would give out its old epochs and challenges once more.
        model = SoftwareSwitch(config, mac=OWN_MAC, ip=OWN_IP, seed=secrets.randbits(64), operator_key=operator_key)
        for given in parent or []:
            number, above = parse_parent(given, port=ports - 1)
            model.set_parent(number, above)
        server = SwitchServer(model, open_ports(bind, [udp_base + port if udp_base else 0 for port in range(ports)]))
    except (ValueError, OSError, IswitchError) as error:
        sentence = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        console.print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
    with server:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: server.stop())
        addresses = [opened.getsockname() for opened in server.sockets]
        shown = ", ".join(f"{host}:{udp_port}" for host, udp_port in addresses)
        console.print(f"the software switch ({ports} ports) listens at {shown}; Ctrl-C ends it", highlight=False)
        if ready_file:
            _write(
                ready_file,
                {
                    "ports": addresses,
                    "switches": [{"ports": addresses}],
                    "pid": os.getpid(),
                    "engine": "software",
                    "config": asdict(config),
                },
            )
        server.serve()
        if summary:
            _write(summary, {"counters": model.counters()})


def _write(path: Path, value: object) -> None:
    """Write a file in one step, so that a program that waits for it never reads half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)

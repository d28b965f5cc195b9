"""The command `iswitch switch`: a software switch on this machine, until Ctrl-C."""

import os
import secrets
import signal
from dataclasses import asdict
from typing import Annotated

from rich.console import Console

from iswitch.config import PORTS_MAX, Config
from iswitch.errors import IswitchError
from iswitch.switch.options import (
    SWITCH,
    BindOption,
    JobsOption,
    MembersOption,
    ReadyFileOption,
    SummaryOption,
    UdpBaseOption,
    fail,
    option,
    write_json,
)
from iswitch.switch.parents import parse_parent
from iswitch.switch.replay import ReplayOption, parse_replay
from iswitch.switch.server import SwitchServer
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch

__all__ = ["switch"]

DEFAULT = Config()
OWN_MAC, OWN_IP = bytes.fromhex("020000000001"), bytes(4)
"""Addresses that no datagram shows: the kernel writes the real ones."""


def switch(
    ports: Annotated[
        int,
        option(
            panel=SWITCH,
            metavar="N",
            min=1,
            max=PORTS_MAX,
            help="Number of ports. Any number of workers can share one.",
        ),
    ] = DEFAULT.ports,
    members: MembersOption = DEFAULT.members,
    jobs: JobsOption = DEFAULT.jobs,
    window: Annotated[
        int | None,
        option(
            panel=SWITCH,
            metavar="N",
            help="Segments that a worker can have in flight, a power of two. By default 64, or fewer if the kernel's "
            "limit of socket buffers (`sysctl net.core.rmem_max`) holds fewer.",
        ),
    ] = None,
    elements: Annotated[
        int | None,
        option(
            panel=SWITCH,
            metavar="N",
            help="Most elements in a segment, a multiple of 8. By default, as many as a packet on the interface at "
            "--bind carries. All networks between must carry them too.",
        ),
    ] = None,
    replay: ReplayOption = None,
    bind: BindOption = "127.0.0.1",
    udp_base: UdpBaseOption = 27000,
    parent: Annotated[
        list[str] | None,
        option(
            panel=SWITCH,
            metavar="JOB=HOST:PORT/RANKS",
            help="Make this switch a leaf of another one in a job: 0=10.0.0.9:27000/0-3,7 for the ranks 0 to 3 and 7. "
            "May be repeated.",
        ),
    ] = None,
    operator_key: Annotated[
        int,
        option(
            panel=SWITCH,
            metavar="KEY",
            min=0,
            help="A key that ends any job (`iswitch end-job`), and that all switches of a tree share; 0 for none.",
        ),
    ] = 0,
    ready_file: ReadyFileOption = None,
    summary: SummaryOption = None,
) -> None:
    """Run a software switch on this machine until Ctrl-C.

    Each port is a UDP socket. Workers need nothing but the address of one.
    """
    console = Console(stderr=True)
    try:
        sockets = open_ports(bind, [udp_base + port if udp_base else 0 for port in range(ports)])
        config = config_for(
            sockets, members=members, jobs=jobs, window=window, elements=elements, replay=parse_replay(replay)
        )
        # A switch that is started again with its old seed would give out its old epochs and challenges once more.
        model = SoftwareSwitch(config, mac=OWN_MAC, ip=OWN_IP, seed=secrets.randbits(64), operator_key=operator_key)
        for given in parent or []:
            number, above = parse_parent(given, port=ports - 1)
            model.set_parent(number, above)
        server = SwitchServer(model, sockets)
    except ValueError as error:  # of a parameter of `Config`, which is an option here
        fail(console, ValueError(str(error).replace("Config ", "--", 1)))
    except (OSError, IswitchError) as error:
        fail(console, error)
    with server:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: server.stop())
        addresses = [opened.getsockname() for opened in server.sockets]
        shown = ", ".join(f"{host}:{udp_port}" for host, udp_port in addresses)
        console.print(f"the software switch ({ports} ports) listens at {shown}; Ctrl-C ends it", highlight=False)
        if ready_file:
            write_json(
                console,
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
            write_json(console, summary, {"counters": model.counters()})

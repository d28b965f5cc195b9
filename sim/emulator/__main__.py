"""`python -m sim.emulator`: switches on this machine, with a UDP socket, a TAP device or a link at each port, until
Ctrl-C."""

import ipaddress
import os
import secrets
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from iswitch.config import Config
from iswitch.switch.options import (
    OUTPUT,
    PORTS,
    SWITCH,
    BindOption,
    ElementsOption,
    JobsOption,
    MembersOption,
    ReadyFileOption,
    SummaryOption,
    UdpBaseOption,
    WindowOption,
    fail,
    option,
    write_json,
)
from iswitch.switch.replay import ReplayOption, parse_replay
from sim.emulator.compile import CompileError
from sim.emulator.defaults import roomy_queue_bytes
from sim.emulator.device import ENGINES, open_device
from sim.emulator.engine import BoardError
from sim.emulator.fabric import Node
from sim.emulator.faults import Rates
from sim.emulator.link import parse_link
from sim.emulator.port_layout import PortLayout
from sim.emulator.report import show
from sim.emulator.report import summary as summarised
from sim.emulator.tree import configure_leaves, parse_leaf
from sim.emulator.wall import SLICE_CYCLES, WallTime
from sim.frames.client import SWITCH_IP, SWITCH_MAC

DEFAULT = Config()

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
FAULTS = "Faults"


@app.command()
def main(
    ports: Annotated[int, option(panel=SWITCH, metavar="N", help="Number of ports.")] = DEFAULT.ports,
    bus: Annotated[
        int, option(panel=SWITCH, metavar="BITS", help="Width of the datapath: 64, 256 or 512.")
    ] = DEFAULT.bus_bits,
    members: MembersOption = DEFAULT.members,
    jobs: JobsOption = DEFAULT.jobs,
    window: WindowOption = DEFAULT.window,
    elements: ElementsOption = DEFAULT.elements,
    queue: Annotated[
        int | None,
        option(
            panel=SWITCH,
            metavar="BYTES",
            help="Size of each queue of a port, a power of two. If not given, results of a whole window have room, so "
            "that several workers can share a port.",
        ),
    ] = None,
    half_width: Annotated[
        bool,
        typer.Option(
            "--half-width", rich_help_panel=SWITCH, help="Build the switch with the number formats bf16 and fp16."
        ),
    ] = DEFAULT.half_width,
    replay: ReplayOption = None,
    switches: Annotated[int, option(panel=SWITCH, metavar="N", min=1, help="Number of switches, all built alike.")] = 1,
    mac: Annotated[
        str, option(panel=SWITCH, metavar="MAC", help="MAC address of the first switch; the others follow.")
    ] = SWITCH_MAC.hex(":"),
    ip: Annotated[
        str, option(panel=SWITCH, metavar="IPV4", help="IPv4 address of the first switch; the others follow.")
    ] = ".".join(map(str, SWITCH_IP)),
    engine: Annotated[
        str,
        option(
            panel=SWITCH,
            metavar="|".join(ENGINES),
            help="Simulator that compiles the RTL, or the software switch, without RTL.",
        ),
    ] = "verilator",
    library: Annotated[
        Path | None,
        option(
            panel=SWITCH, metavar="FILE", help="A switch that is compiled already; replaces --ports, --bus and so on."
        ),
    ] = None,
    bind: BindOption = "127.0.0.1",
    udp_base: UdpBaseOption = 27000,
    tap: Annotated[
        list[str] | None,
        option(
            panel=PORTS,
            metavar="TAP",
            help="Attach a TAP device to a port, instead of a socket (needs root): 0=isw0 is port 0, 1:0=isw0 is "
            "port 0 of "
            "switch 1. May be repeated.",
        ),
    ] = None,
    link: Annotated[
        list[str] | None,
        option(
            panel=PORTS,
            metavar="LINK",
            help="Connect two ports: 0:3-2:0 is port 3 of switch 0 with port 0 of switch 2. Properties of the cable "
            "may "
            "follow: 0:3-2:0,rate=1e9,loss=0.01. May be repeated.",
        ),
    ] = None,
    leaf: Annotated[
        list[str] | None,
        option(
            panel=PORTS,
            metavar="LEAF",
            help="Build a tree of switches: 1-0:0-3,7 makes switch 1 a leaf of switch 0 for ranks 0 to 3 and 7, in "
            "job 0; "
            "1-0:0-3,7:job=2 does so in job 2. May be repeated.",
        ),
    ] = None,
    loss: Annotated[
        float,
        option(panel=FAULTS, metavar="P", help="Probability that a frame is lost, in each direction of each port."),
    ] = 0,
    duplicate: Annotated[float, option(panel=FAULTS, metavar="P", help="Probability that a frame arrives twice.")] = 0,
    reorder: Annotated[
        float, option(panel=FAULTS, metavar="P", help="Probability that later frames overtake a frame.")
    ] = 0,
    corrupt: Annotated[
        float, option(panel=FAULTS, metavar="P", help="Probability of a flipped bit that the FCS detects.")
    ] = 0,
    silent_corrupt: Annotated[
        float, option(panel=FAULTS, metavar="P", help="Probability of a flipped bit that the FCS does not detect.")
    ] = 0,
    delay_us: Annotated[
        float, option(panel=FAULTS, metavar="US", help="Delay of each frame in microseconds, in each direction.")
    ] = 0,
    fault: Annotated[
        list[str] | None,
        option(
            panel=FAULTS,
            metavar="FAULT",
            help="Set one of these for one direction of one port: 2:rx:loss=0.1 loses frames that enter the switch at "
            "port 2, 1:2:tx:loss=0.1 frames that leave switch 1 there. May be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        option(
            panel=FAULTS,
            metavar="N",
            help="Seed of the faults and of the random numbers of the switch (default: another one in each run).",
        ),
    ] = None,
    operator_key: Annotated[
        int | None,
        option(
            panel=SWITCH,
            metavar="KEY",
            min=0,
            help="A key that ends any job (`iswitch end-job`), and by which the switches of a tree trust each other; 0 "
            "for none. Default: a random one.",
        ),
    ] = None,
    pcap: Annotated[
        Path | None, option(panel=OUTPUT, metavar="FOLDER", help="Write a packet capture of each port.")
    ] = None,
    slice_cycles: Annotated[
        int,
        option("--slice", panel=OUTPUT, metavar="CYCLES", min=1, help="Clock cycles between two looks at the sockets."),
    ] = SLICE_CYCLES,
    ready_file: ReadyFileOption = None,
    summary: SummaryOption = None,
) -> None:
    """Run compiled switches on this machine until Ctrl-C.

    Each port is a UDP socket, a TAP device or one end of a link.
    """
    console = Console(stderr=True)
    stopping: list[WallTime] = []
    stopped = []

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        for served in stopping:
            served.stop()
        if not stopping:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        # A switch that is started again with its old seed would give out its old tokens and epochs once more.
        seed = secrets.randbits(32) if seed is None else seed
        config = Config(
            ports=ports,
            bus_bits=bus,
            members=members,
            jobs=jobs,
            window=window,
            elements=elements,
            queue_bytes=queue or roomy_queue_bytes(window, elements),
            half_width=half_width,
            replay=parse_replay(replay),
        )
        layout = PortLayout(
            bind=bind,
            udp_base=udp_base,
            links=[parse_link(given) for given in link or []],
            taps=tap or [],
            rates=Rates(
                loss=loss,
                duplicate=duplicate,
                reorder=reorder,
                corrupt=corrupt,
                silent_corrupt=silent_corrupt,
                delay_us=delay_us,
            ),
            faults=fault or [],
            seed=seed,
            pcap=pcap,
        )
        # Without a key, any worker could pass for a switch of a tree.
        shared_key = 1 + secrets.randbelow(2**64 - 1) if operator_key is None else operator_key
        macs, ips = _addresses("--mac", mac, _mac, switches), _addresses("--ip", ip, ipaddress.IPv4Address, switches)
        boards = [
            open_device(
                None if library else config,
                engine=engine,
                seed=seed + count,
                operator_key=shared_key,
                ip=ips[count].to_bytes(4),
                path=library,
                mac=macs[count].to_bytes(6),
            )
            for count in range(switches)
        ]
        configure_leaves(boards, layout.links, [parse_leaf(given) for given in leaf or []])
        served = WallTime(layout.build(boards), slice_cycles=slice_cycles)
    except (ValueError, OSError, BoardError, CompileError) as error:
        fail(console, error)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    with served:
        stopping.append(served)
        found = [_describe_ports(node) for node in served.fabric.nodes]
        for count, (node, described) in enumerate(zip(served.fabric.nodes, found)):
            built, name = node.board.config, f"switch {count}, {described['ip']}" if switches > 1 else "the switch"
            console.print(
                f"{name} ({node.board.engine}, {built.ports} ports, {built.bus_bits} bits) listens at "
                f"{', '.join(map(_format_address, described['ports']))}; Ctrl-C ends it",
                highlight=False,
                soft_wrap=True,
            )
        if ready_file:
            write_json(
                console,
                ready_file,
                found[0]
                | {
                    "switches": found,
                    "pid": os.getpid(),
                    "engine": boards[0].engine,
                    "config": asdict(boards[0].config),
                },
            )
        if not stopped:
            served.serve()
        counted = summarised(served)
    show(console, counted)
    if summary:
        write_json(console, summary, counted)


def _mac(given: str) -> int:
    octets = given.split(":")
    if len(octets) != 6 or not all(len(octet) == 2 for octet in octets):
        raise ValueError
    return int("".join(octets), 16)


def _addresses(name: str, first: str, parse: Callable[[str], Any], count: int) -> list[int]:
    """Return the addresses of `count` switches as numbers. Raises ValueError that names the option."""
    bits, example = (48, SWITCH_MAC.hex(":")) if name == "--mac" else (32, ".".join(map(str, SWITCH_IP)))
    try:
        number = int(parse(first))
    except ValueError:
        raise ValueError(f"{name} must be an address such as {example}, not {first!r}") from None
    if number + count > 1 << bits:
        raise ValueError(f"{name} must leave room for {count} addresses, and {first} does not")
    return list(range(number, number + count))


def _describe_ports(node: Node) -> dict[str, Any]:
    """Return where to find a switch. The address of a port is [host, UDP port], the name of a TAP, or None for a
    link."""
    return {
        "mac": node.board.mac.hex(":"),
        "ip": str(ipaddress.IPv4Address(node.board.ip)),
        "ports": [port.attachment.address if port.attachment else None for port in node.ports],
    }


def _format_address(address: Any) -> str:
    return (
        "(a link)"
        if address is None
        else f"TAP {address}"
        if isinstance(address, str)
        else f"{address[0]}:{address[1]}"
    )


if __name__ == "__main__":
    app()

"""`python -m sim.emulator`: switches on this machine, with a UDP socket, a TAP device or a link at each port, until Ctrl-C."""

import ipaddress
import json
import os
import secrets
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from iswitch.config import Config
from rich.console import Console

from sim.bench.client import SWITCH_IP, SWITCH_MAC
from sim.emulator.compile import CompileError
from sim.emulator.engine import Board, BoardError
from sim.emulator.fabric import Node
from sim.emulator.faults import Rates
from sim.emulator.link import parse_link
from sim.emulator.plan import Plan
from sim.emulator.replay import parse_replay
from sim.emulator.report import show, summary as summarised
from sim.emulator.tree import parse_leaf, plant
from sim.emulator.wall import SLICE_CYCLES, WallTime

DEFAULT = Config()

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    ports: Annotated[int, typer.Option(help="Ports of the switch.")] = DEFAULT.ports,
    bus: Annotated[int, typer.Option(help="Bus width in bits: 64, 256 or 512.")] = DEFAULT.bus_bits,
    members: Annotated[int, typer.Option(help="Workers that a job can hold.")] = DEFAULT.members,
    jobs: Annotated[int, typer.Option(help="Jobs at a time.")] = DEFAULT.jobs,
    window: Annotated[int, typer.Option(help="Segments a worker may have in flight.")] = DEFAULT.window,
    elements: Annotated[int, typer.Option(help="Numbers in a segment at most.")] = DEFAULT.elements,
    queue: Annotated[int | None, typer.Option(
        help="Bytes of each queue of a port, a power of two. If not given, results of a whole window have room, so that several workers can "
             "share a port.")] = None,
    replay: Annotated[str | None, typer.Option(
        help="With a replay service: default, or sizes such as capacity=65536,log_bytes=1048576,sessions=8,tables=1 (see Config.replay).")] = None,
    bind: Annotated[str, typer.Option(help="Address of the sockets.")] = "127.0.0.1",
    udp_base: Annotated[int, typer.Option(help="UDP port of port 0; the others follow. 0: any free ones.")] = 27000,
    tap: Annotated[list[str] | None, typer.Option(
        help="port=name or switch:port=name: a TAP device in place of the socket; may be repeated.")] = None,
    switches: Annotated[int, typer.Option(help="Switches, all of one kind.")] = 1,
    link: Annotated[list[str] | None, typer.Option(
        help="0:3-2:0,rate=1e9,delay_us=5,loss=0.01: port 3 of switch 0 with port 0 of switch 2; may be repeated.")] = None,
    leaf: Annotated[list[str] | None, typer.Option(
        help="1-0:0-3,7:job=2: in job 2 (0 if not said) switch 1 is a leaf of switch 0, for the ranks 0 to 3 and 7; may be repeated.")] = None,
    mac: Annotated[str, typer.Option(help="MAC address of the switch; further switches count up.")] = SWITCH_MAC.hex(":"),
    ip: Annotated[str, typer.Option(
        help="IPv4 address of the switch; further switches count up.")] = ".".join(map(str, SWITCH_IP)),
    engine: Annotated[str, typer.Option(help="verilator or cxxrtl.")] = "verilator",
    library: Annotated[Path | None, typer.Option(help="A board compiled already, with its ports, bus, ...")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the switch's random numbers and of the faults; another one each time if not given.")] = None,
    loss: Annotated[float, typer.Option(help="Chance that a frame is lost, each way, every port.")] = 0,
    duplicate: Annotated[float, typer.Option(help="Chance that a frame comes twice.")] = 0,
    reorder: Annotated[float, typer.Option(help="Chance that later frames overtake a frame.")] = 0,
    corrupt: Annotated[float, typer.Option(help="Chance of a bad FCS.")] = 0,
    silent_corrupt: Annotated[float, typer.Option(help="Chance of a wrong bit under a good FCS.")] = 0,
    delay_us: Annotated[float, typer.Option(help="Microseconds that a frame takes, each way.")] = 0,
    fault: Annotated[list[str] | None, typer.Option(
        help="port:rx|tx:kind=value (of several switches switch:port:...), for one direction (rx enters the switch); may be repeated.")] = None,
    pcap: Annotated[Path | None, typer.Option(help="Folder for a capture per port.")] = None,
    slice_cycles: Annotated[int, typer.Option("--slice", help="Cycles between looks at the sockets.")] = SLICE_CYCLES,
    ready_file: Annotated[Path | None, typer.Option(help="Written (JSON) when the sockets are open.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Written (JSON) at the end.")] = None,
) -> None:
    """Compiled switches with a UDP socket for each port that has no TAP and no link, until Ctrl-C."""
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
        if switches < 1:
            raise ValueError(f"switches must be at least 1, not {switches}")
        # Or a switch that is started again would hand out the tokens and epochs of its last life.
        seed = secrets.randbits(32) if seed is None else seed
        config = Config(ports=ports, bus_bits=bus, members=members, jobs=jobs, window=window, elements=elements,
                        queue_bytes=queue or roomy_queue_bytes(window, elements), replay=parse_replay(replay))
        plan = Plan(bind=bind, udp_base=udp_base, links=[parse_link(given) for given in link or []], taps=tap or [],
                    rates=Rates(loss=loss, duplicate=duplicate, reorder=reorder, corrupt=corrupt, silent_corrupt=silent_corrupt,
                                delay_us=delay_us), faults=fault or [], seed=seed, pcap=pcap)
        first_mac, first_ip = bytes.fromhex(mac.replace(":", "")), ipaddress.IPv4Address(ip)
        boards = [Board(None if library else config, engine=engine, seed=seed + count, ip=(first_ip + count).packed, path=library,
                        mac=(int.from_bytes(first_mac) + count).to_bytes(len(first_mac))) for count in range(switches)]
        plant(boards, plan.links, [parse_leaf(given) for given in leaf or []])
        served = WallTime(plan.build(boards), slice_cycles=slice_cycles)
    except (ValueError, OSError, BoardError, CompileError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    with served:
        stopping.append(served)
        found = [_described(node) for node in served.fabric.nodes]
        for count, (node, described) in enumerate(zip(served.fabric.nodes, found)):
            built, name = node.board.config, f"switch {count}, {described['ip']}" if switches > 1 else "the switch"
            console.print(f"{name} ({node.board.engine}, {built.ports} ports, {built.bus_bits} bits) listens at "
                          f"{', '.join(map(_spoken, described['ports']))}; Ctrl-C ends it", highlight=False, soft_wrap=True)
        if ready_file:
            _write(ready_file, found[0] | {"switches": found, "pid": os.getpid(), "engine": boards[0].engine, "config": asdict(boards[0].config)})
        if not stopped:
            served.serve()
        counted = summarised(served)
    show(console, counted)
    if summary:
        _write(summary, counted)


def roomy_queue_bytes(window: int, elements: int) -> int:
    """Return the least `Config.queue_bytes` with room for a window of results."""
    least = Config(elements=elements, queue_bytes=1 << 20)
    bytes_needed = max(window, 2) * (least.frame_bytes_max + 64)
    return max(DEFAULT.queue_bytes, 1 << (bytes_needed - 1).bit_length())


def _described(node: Node) -> dict[str, Any]:
    """Where to find a switch; a port's address is [host, UDP port], the name of a TAP, or nothing for a link."""
    return {"mac": node.board.mac.hex(":"), "ip": str(ipaddress.IPv4Address(node.board.ip)),
            "ports": [port.attachment.address if port.attachment else None for port in node.ports]}


def _spoken(address: Any) -> str:
    return "(a link)" if address is None else f"TAP {address}" if isinstance(address, str) else f"{address[0]}:{address[1]}"


def _write(path: Path, value: object) -> None:
    """In one step: who waits for the file never reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


if __name__ == "__main__":
    app()

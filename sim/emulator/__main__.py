"""`python -m sim.emulator`: the switch on this machine, one UDP socket for each of its ports, until Ctrl-C."""

import ipaddress
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from iswitch.config import Config
from rich.console import Console
from rich.table import Table

from sim.bench.client import SWITCH_IP, SWITCH_MAC
from sim.emulator.compile import CompileError
from sim.emulator.counters import counters
from sim.emulator.engine import Board, BoardError
from sim.emulator.faults import Faults, Rates, parse_faults
from sim.emulator.udp import SLICE_CYCLES, Emulator

DEFAULT = Config()
DRAIN_CYCLES = 1_000_000

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    ports: Annotated[int, typer.Option(help="Ports of the switch.")] = DEFAULT.ports,
    bus: Annotated[int, typer.Option(help="Bus width in bits: 64, 256 or 512.")] = DEFAULT.bus_bits,
    members: Annotated[int, typer.Option(help="Workers that a job can hold.")] = DEFAULT.members,
    jobs: Annotated[int, typer.Option(help="Jobs at a time.")] = DEFAULT.jobs,
    window: Annotated[int, typer.Option(help="Segments a worker may have in flight.")] = DEFAULT.window,
    elements: Annotated[int, typer.Option(help="Numbers in a segment at most.")] = DEFAULT.elements,
    bind: Annotated[str, typer.Option(help="Address of the sockets.")] = "127.0.0.1",
    udp_base: Annotated[int, typer.Option(help="UDP port of port 0; the others follow. 0: any free ones.")] = 27000,
    mac: Annotated[str, typer.Option(help="MAC address of the switch.")] = SWITCH_MAC.hex(":"),
    ip: Annotated[str, typer.Option(help="IPv4 address of the switch in its frames.")] = ".".join(map(str, SWITCH_IP)),
    engine: Annotated[str, typer.Option(help="verilator or cxxrtl.")] = "verilator",
    library: Annotated[Path | None, typer.Option(help="A board compiled already, with its ports, bus, ...")] = None,
    seed: Annotated[int, typer.Option(help="Of the switch's random numbers and of the faults.")] = 1,
    loss: Annotated[float, typer.Option(help="Chance that a frame is lost, each way, every port.")] = 0,
    duplicate: Annotated[float, typer.Option(help="Chance that a frame comes twice.")] = 0,
    reorder: Annotated[float, typer.Option(help="Chance that later frames overtake a frame.")] = 0,
    corrupt: Annotated[float, typer.Option(help="Chance of a bad FCS.")] = 0,
    silent_corrupt: Annotated[float, typer.Option(help="Chance of a wrong bit under a good FCS.")] = 0,
    delay_us: Annotated[float, typer.Option(help="Microseconds that a frame takes, each way.")] = 0,
    fault: Annotated[list[str] | None, typer.Option(
        help="port:rx|tx:kind=value, for one direction (rx enters the switch); may be repeated.")] = None,
    pcap: Annotated[Path | None, typer.Option(help="Folder for a capture per port.")] = None,
    slice_cycles: Annotated[int, typer.Option("--slice", help="Cycles between looks at the sockets.")] = SLICE_CYCLES,
    ready_file: Annotated[Path | None, typer.Option(help="Written (JSON) when the sockets are open.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Written (JSON) at the end.")] = None,
) -> None:
    """The compiled switch with a UDP socket for each port, until Ctrl-C."""
    console = Console(stderr=True)
    stopping: list[Emulator] = []
    stopped = []

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        for emulator in stopping:
            emulator.stop()
        if not stopping:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        config = Config(ports=ports, bus_bits=bus, members=members, jobs=jobs, window=window, elements=elements)
        board = Board(None if library else config, engine=engine, seed=seed, mac=bytes.fromhex(mac.replace(":", "")),
                      ip=ipaddress.IPv4Address(ip).packed, path=library)
        base = Rates(loss=loss, duplicate=duplicate, reorder=reorder, corrupt=corrupt, silent_corrupt=silent_corrupt,
                     delay_us=delay_us)
        faults = {place: Faults(rates, seed=seed, port=place[0], direction=place[1])
                  for place, rates in parse_faults(base, fault or [], board.config.ports).items()}
        emulator = Emulator(board, (bind, udp_base), faults=faults, pcap=pcap, slice_cycles=slice_cycles)
    except (ValueError, OSError, BoardError, CompileError) as error:
        console.print(f"[red]{error}", highlight=False)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    with board, emulator:
        stopping.append(emulator)
        addresses = [port.address for port in emulator.ports]
        built = board.config
        console.print(f"the switch ({board.engine}, {built.ports} ports, {built.bus_bits} bits) listens at "
                      f"{', '.join(f'{host}:{number}' for host, number in addresses)}; Ctrl-C ends it",
                      highlight=False, soft_wrap=True)
        if ready_file:
            _write(ready_file, {"ports": addresses, "mac": mac, "ip": ip, "pid": os.getpid(),
                                "engine": board.engine, "config": asdict(board.config)})
        if not stopped:
            emulator.serve()
        found = _summary(emulator)
    _show(console, found)
    if summary:
        _write(summary, found)


def _write(path: Path, value: object) -> None:
    """In one step: who waits for the file never reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


def _summary(emulator: Emulator) -> dict[str, Any]:
    board = emulator.board
    cycles = board.cycles
    board.run(DRAIN_CYCLES, emulator.now_us)
    for port in range(board.config.ports):
        board.receive(port)
    try:
        registers, note = counters(board, now_us=emulator.now_us), ""
    except BoardError as error:
        registers, note = {}, str(error)
    faults = {f"port {number} {direction}": {kind: count for kind, count in wire.counts.items() if count}
              for number, port in enumerate(emulator.ports) for direction, wire in port.faults.items() if wire.active}
    return {
        "counters": registers, "note": note, "ports": [dict(port.counts) for port in emulator.ports], "faults": faults,
        "cycles": cycles, "seconds": emulator.now_us / 1e6, "busy_seconds": emulator.busy_seconds,
        "rtl_seconds": emulator.rtl_seconds,
        "rtl_khz": emulator.busy_cycles / emulator.rtl_seconds / 1e3 if emulator.rtl_seconds else 0.0,
        "rtl_share": emulator.rtl_seconds / emulator.busy_seconds if emulator.busy_seconds else 0.0,
    }


def _show(console: Console, found: dict[str, Any]) -> None:
    table = Table("counter", "count", title="non-zero counters", title_justify="left")
    for name, count in found["counters"].items():
        table.add_row(name, f"{count:,}")
    for number, counts in enumerate(found["ports"]):
        for name, count in counts.items():
            table.add_row(f"virtual port {number}: {name}", f"{count:,}")
    for place, counts in found["faults"].items():
        for name, count in counts.items():
            table.add_row(f"injected at {place}: {name}", f"{count:,}")
    console.print(table)
    if found["note"]:
        console.print(f"[yellow]{found['note']}", highlight=False)
    console.print(f"{found['cycles']:,} cycles in {found['seconds']:.1f} s; while busy the RTL ran at "
                  f"{found['rtl_khz']:.0f} kHz and took {found['rtl_share']:.0%} of the processor time",
                  highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()

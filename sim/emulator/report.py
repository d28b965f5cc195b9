"""The emulator's summary: every counter of every switch, port, wire and link."""

from typing import Any

from rich.console import Console
from rich.table import Table

from sim.emulator.counters import counters
from sim.emulator.engine import BoardError
from sim.emulator.fabric import Fabric, Node
from sim.emulator.wall import WallTime
from sim.emulator.wire import Wire

__all__ = ["show", "summary"]

DRAIN_CYCLES = 1_000_000


def summary(served: WallTime) -> dict[str, Any]:
    """Return the summary: of a single switch `counters`, `ports`, ... at the top; of several, each switch under
    `switches`."""
    switches = [_switch(node, served.now_us) for node in served.fabric.nodes]
    found = switches[0] if len(switches) == 1 else {"switches": switches, "links": _links(served.fabric)}
    return found | {
        "seconds": served.now_us / 1e6,
        "busy_seconds": served.busy_seconds,
        "rtl_seconds": served.rtl_seconds,
        "rtl_khz": served.busy_cycles / served.rtl_seconds / 1e3 if served.rtl_seconds else 0.0,
        "rtl_share": served.rtl_seconds / served.busy_seconds if served.busy_seconds else 0.0,
    }


def _switch(node: Node, now_us: int) -> dict[str, Any]:
    board = node.board
    cycles = board.cycles
    board.run(DRAIN_CYCLES, now_us)
    for number in range(board.config.ports):
        board.receive(number)
    try:
        registers, note = counters(board, now_us=now_us), ""
    except BoardError as error:
        registers, note = {}, str(error)
    faults = {
        f"port {number} {direction}": _happened(wire)
        for number, port in enumerate(node.ports)
        if port.attachment
        for direction, wire in (("rx", port.inbound), ("tx", port.outbound))
        if wire and wire.faults.active
    }
    return {
        "counters": registers,
        "note": note,
        "ports": [dict(port.counts) for port in node.ports],
        "faults": faults,
        "cycles": cycles,
    }


def _links(fabric: Fabric) -> dict[str, dict[str, int]]:
    """Return the events on each link, by the end from which the frames came."""
    ends = [(link.one, link.other) for link in fabric.links] + [(link.other, link.one) for link in fabric.links]
    wires = {
        f"{one[0]}:{one[1]} to {other[0]}:{other[1]}": fabric.nodes[one[0]].ports[one[1]].outbound
        for one, other in ends
    }
    return {name: _happened(wire) for name, wire in wires.items() if wire}


def _happened(wire: Wire) -> dict[str, int]:
    return {kind: count for kind, count in (wire.faults.counts | wire.counts).items() if count}


def show(console: Console, found: dict[str, Any]) -> None:
    """Print a summary."""
    for number, switch in enumerate(found.get("switches", [found])):
        title = f"switch {number}, non-zero" if "switches" in found else "non-zero counters"
        table = Table("counter", "count", title=title, title_justify="left")
        for name, count in switch["counters"].items():
            table.add_row(name, f"{count:,}")
        for port, counts in enumerate(switch["ports"]):
            for name, count in counts.items():
                table.add_row(f"virtual port {port}: {name}", f"{count:,}")
        for place, counts in switch["faults"].items():
            for name, count in counts.items():
                table.add_row(f"injected at {place}: {name}", f"{count:,}")
        console.print(table)
        if switch["note"]:
            console.print(f"[yellow]{switch['note']}", highlight=False)
    for place, counts in found.get("links", {}).items():
        for name, count in counts.items():
            console.print(f"link {place}: {name} {count:,}", highlight=False)
    cycles = sum(switch["cycles"] for switch in found.get("switches", [found]))
    console.print(
        f"{cycles:,} cycles in {found['seconds']:.1f} s; while busy the RTL ran at "
        f"{found['rtl_khz']:.0f} kHz and took {found['rtl_share']:.0%} of the processor time",
        highlight=False,
        soft_wrap=True,
    )

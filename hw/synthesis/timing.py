"""`make timing`: places and routes a small switch for an ECP5, and prints its fmax and critical path.

The switch has some 300 port bits and would stand alone in the device, so it is put between shift registers
(`between_registers`): one pin feeds all inputs, and one pin takes all outputs out. Every path is then one from register
to register inside the device, no logic can be optimised away, and the only cost is a register for each port bit. No
board is involved and no bitstream made. With `--parts` each component goes through the same alone, which shows the
paths behind the critical one.
"""

import json
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import Component, In
from rich.console import Console
from rich.table import Table

from hw.aggregate.accumulator import LOOP, Accumulator
from hw.aggregate.result import ResultComposer
from hw.aggregate.sequencer import Sequencer
from hw.bridge.forwarder import Forwarder
from hw.decide.claims import Claims
from hw.decide.core import Core
from hw.decide.counters import Counters
from hw.egress.output_port import OutputPort
from hw.ingress.arbiter import Arbiter
from hw.ingress.packet_queue import PacketQueue
from hw.ingress.parser import Parser
from hw.interface.expense import expense_max
from hw.numeric.lane import Lane
from hw.synthesis import place_and_route as route
from hw.synthesis.emit import flat, for_synthesis, tool
from hw.synthesis.place_and_route import CORE, RESOURCES, Clock, device_options, placer_options
from iswitch.config import Config
from iswitch.wire import STALENESS_MAX

__all__ = [
    "ASKED_MHZ",
    "BUILD",
    "CONFIG",
    "DEVICE",
    "ELSEWHERE",
    "PARTS",
    "between_registers",
    "component",
    "main",
    "place",
]

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "timing"
CONFIG = Config(
    ports=2,
    bus_bits=64,
    members=4,
    jobs=2,
    window=4,
    elements=352,
    queue_bytes=4096,
    mac_entries=64,
    staleness=0,
    uplinks=False,
    half_width=False,
)
"""A small switch with 46 block RAMs, without asynchronous jobs, which take some 3,000 LUTs in the core, without trees,
and without half-width formats."""


@dataclass(frozen=True)
class Device:
    """A part, and a pin with a path to the clock network; the router finds none from an arbitrary pin."""

    part: str
    clock_pin: str


DEVICES = {
    "25f": Device("LFE5U-25F-6BG256", "P6"),
    "45f": Device("LFE5U-45F-6BG256", "P6"),
    "85f": Device("LFE5UM5G-85F-8BG554", "K23"),
}
DEVICE = "45f"
ELSEWHERE = {"accumulator8": "85f"}
"""Components too large for the small device, with their devices."""
ASKED_MHZ = 125.0
"""Target of a 64-bit bus at 8 Gbit/s. Nothing depends on meeting it."""
PARTS = {
    "queue": lambda c: PacketQueue(
        bus_bits=c.bus_bits, depth=c.queue_words, frame_bytes_max=c.frame_bytes_max, half_width=c.half_width
    ),
    "arbiter": lambda c: Arbiter(ports=c.ports, bus_bits=c.bus_bits, cycles_max=expense_max(c)),
    "parser": lambda c: Parser(bus_bits=c.bus_bits),
    "core": Core,
    "core in a tree": lambda c: Core(replace(c, uplinks=True)),
    "claims": lambda c: Claims(replace(c, staleness=STALENESS_MAX)),
    "forwarder": Forwarder,
    "sequencer": lambda c: Sequencer(c, loop=LOOP),
    "lane": lambda c: Lane(half_width=c.half_width),
    "accumulator": Accumulator,
    "accumulator8": lambda c: Accumulator(replace(c, bus_bits=256)),
    "composer": ResultComposer,
    "output": lambda c: OutputPort(c, port=0),
    "counters": Counters,
}


def between_registers(module, inputs: list[Value], outputs: list[Value]) -> tuple[Module, list[Signal]]:
    """Return a module whose inputs come from a shift register behind pin `feed`, and whose outputs, sampled when
    `catch` is set, leave by pin `drain`. A register stands between the shift registers and the module."""
    m = Module()
    m.submodules.part = module
    feed, catch, drain = Signal(name="feed"), Signal(name="catch"), Signal(name="drain")
    fed = Signal(len(Cat(inputs)))
    caught = Signal(len(Cat(outputs)))
    m.d.sync += [fed.eq(Cat(feed, fed)), caught.eq(Cat(feed, caught)), drain.eq(caught[-1])]
    with m.If(catch):
        m.d.sync += caught.eq(Cat(outputs))
    m.d.comb += Cat(inputs).eq(fed)
    return m, [feed, catch, drain]


def switch(config: Config) -> tuple[Module, list[Signal]]:
    module, ports = flat(config)
    driven = re.compile(r"rx\d+_(?!ready)|tx\d+_ready|now_us|seed|operator_key|own_|parents")
    return between_registers(
        module,
        [port for port in ports if driven.match(port.name)],
        [port for port in ports if not driven.match(port.name)],
    )


def component(part: Component) -> tuple[Module, list[Signal]]:
    sides: dict[bool, list[Value]] = {True: [], False: []}
    for _, member, value in part.signature.flatten(part):
        sides[member.flow == In].append(Value.cast(value))
    return between_registers(part, [value for value in sides[True] if isinstance(value, Signal)], sides[False])


def place(name: str, module: Module, pins: list[Signal], *, seed: int = 1, device: str = DEVICE) -> dict[str, Any]:
    """Synthesise, place and route; return the clock, resources and the critical path. The files stay in
    `build/timing/<name>`."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with for_synthesis():
        # With source locations, for the report.
        (folder / "top.il").write_text(rtlil_backend.convert(module, name="top", ports=pins))
    (folder / "pins.lpf").write_text(f'LOCATE COMP "clk" SITE "{DEVICES[device].clock_pin}";\n')
    tool("yosys", ["-q", "-l", "yosys.log", "-p", "read_rtlil top.il; synth_ecp5 -top top -json top.json"], folder)
    # No bitstream is made, so neither option lets one pass: pins may stand anywhere, except the clock's, and missed
    # timing is reported.
    tool(
        "nextpnr-ecp5",
        [
            "-q",
            "--log",
            "nextpnr.log",
            *device_options(DEVICES[device].part),
            "--json",
            "top.json",
            "--report",
            "nextpnr.json",
            "--detailed-timing-report",
            "--freq",
            str(ASKED_MHZ),
            "--lpf",
            "pins.lpf",
            "--lpf-allow-unconstrained",
            "--timing-allow-fail",
            "--seed",
            str(seed),
            *placer_options("heap"),
        ],
        folder,
    )
    return report(json.loads((folder / "nextpnr.json").read_text()), json.loads((folder / "top.json").read_text())) | {
        "seconds": round(time.monotonic() - begun)
    }


def report(routed: dict[str, Any], netlist: dict[str, Any]) -> dict[str, Any]:
    """Return the report of `hw.synthesis.place_and_route.report` and the critical path, with places from the
    netlist."""
    names = {name: net["attributes"].get("src", "") for name, net in netlist["modules"]["top"]["netnames"].items()}
    path = next(
        p["path"] for p in routed["critical_paths"] if p["from"].startswith("posedge") and p["to"].startswith("posedge")
    )
    steps = [{"ns": step["delay"], "kind": step["type"], "at": place_of(step["to"]["cell"], names)} for step in path]
    return route.report(routed, {CORE: Clock("clk", ASKED_MHZ)}) | {
        "path": {
            "from": place_of(path[0]["from"]["cell"], names),
            "to": place_of(path[-1]["to"]["cell"], names),
            "ns": round(sum(step["ns"] for step in steps), 2),
            "levels": sum(step["kind"] == "logic" for step in steps),
            "logic_ns": round(sum(step["ns"] for step in steps if step["kind"] != "routing"), 2),
            "routing_ns": round(sum(step["ns"] for step in steps if step["kind"] == "routing"), 2),
            "steps": steps,
        }
    }


def place_of(cell: str, names: dict[str, str]) -> str:
    """Return a signal, and its place in the sources, from a cell's name: Yosys names cells by the signal they drive."""
    signal = re.sub(r"_(TRELLIS_FF|TRELLIS_DPR16X4|LUT4|CCU2C|PFUMX|L6MUX21|DP16KD|MULT18X18D)_.*", "", cell)
    source = next((names[known] for known in (signal, signal.split("[")[0]) if names.get(known)), "")
    source = re.sub(r"-[\d.]+$", "", source.split("|")[-1])
    if str(ROOT) in source:
        source = source[source.index(str(ROOT)) + len(str(ROOT)) + 1 :]
    signal = re.sub(r"^part\.(switch\.)?", "", signal)
    return f"{signal} ({source})" if source.startswith("hw/") else signal


def main(
    parts: Annotated[bool, typer.Option(help="Each component alone too.")] = False,
    only: Annotated[str, typer.Option(help="Only this component; `switch` is the whole.")] = "",
    device: Annotated[str, typer.Option(help=f"One of {', '.join(DEVICES)}; each part has its own.")] = "",
    seed: Annotated[int, typer.Option(help="Of the placement; figures differ by some percent between seeds.")] = 1,
) -> None:
    """Print the fmax of a small switch in an ECP5."""
    console = Console()
    jobs = {"switch": lambda: switch(CONFIG)} if only in ("", "switch") else {}
    for name, make in PARTS.items():
        if parts or only == name:
            jobs[name] = lambda make=make: component(make(CONFIG))
    if not jobs:
        raise typer.BadParameter(f"there is no {only!r}; there are switch, {', '.join(PARTS)}")
    if device and device not in DEVICES:
        raise typer.BadParameter(f"there is no {device!r}; there are {', '.join(DEVICES)}")
    console.print(f"64-bit bus, {CONFIG.ports} ports; minutes for the whole switch", highlight=False)
    found: dict[str, dict[str, Any]] = {}
    table = Table("", "device", "MHz", *RESOURCES.values(), "levels", "ns", "of it routing")
    for name, build in jobs.items():
        on = device or ELSEWHERE.get(name, DEVICE)
        found[name] = one = {"device": DEVICES[on].part} | place(name, *build(), seed=seed, device=on)
        path = one["path"]
        table.add_row(
            name,
            DEVICES[on].part,
            f"{one['clocks'][CORE]['achieved_mhz']:.1f}",
            *(f"{r['used']:,} of {r['available']:,}" for r in one["resources"].values()),
            str(path["levels"]),
            f"{path['ns']:.2f}",
            f"{path['routing_ns']:.2f}",
        )
        written = {"config": vars(CONFIG), "seed": seed, "designs": found}
        (BUILD / "report.json").write_text(json.dumps(written, indent=1) + "\n")
    console.print(table)
    for name, one in found.items():
        met = "met" if one["timing_met"] else "[yellow]not met[/]"
        console.print(
            f"{name}: {ASKED_MHZ:.0f} MHz is {met}. Slowest path: from {one['path']['from']} to {one['path']['to']}",
            highlight=False,
        )


if __name__ == "__main__":
    typer.run(main)

"""Emits the switch: Verilog and RTLIL with flat ports, for simulators, the emulated board and the board projects."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import Cat, ClockDomain, Const, Module, ResetSignal, Shape, Signal, Value
from amaranth.lib.wiring import Component, connect

from hw.replay.memory.ram import OnChipRam
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.switch import Switch, gated_parts
from iswitch.config import Config

__all__ = [
    "NO_LATCH",
    "component_rtlil",
    "component_verilog",
    "flat",
    "for_synthesis",
    "payload_memories_uninitialised",
    "rtlil",
    "tool",
    "verilog",
]

NO_LATCH = "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr"
"""Yosys' check for latches, after `proc`."""
MEMORY_LATENCY = 24
"""Cycles: about the latency of DDR3 at 200 MHz."""


def flat(config: Config, *, gated: bool = False) -> tuple[Module, list[Signal]]:
    """Return the switch with port names that every tool can spell, rx0_data, rx0_bytes, ... trace_seq, and those ports.
    The memory of its replay service is on the chip, with a latency of `MEMORY_LATENCY`.

    With `gated`, each part of `gated_parts` has an input for its clock and an output, core_clk and core_active (see
    `Switch`).
    """
    m = Module()
    m.submodules.switch = switch = Switch(config, gated=gated)
    if config.replay:
        m.submodules.memory = memory = OnChipRam(
            bytes=config.replay.memory_bytes,
            latency=MEMORY_LATENCY,
            address_bits=switch.engine.address_bits,
            data_bits=config.bus_bits,
        )
        connect(m, switch.memory, memory.axi)
    ports: list[Signal] = []

    def port(name: str, like) -> Signal:
        ports.append(Signal(Shape.cast(like.shape()).width, name=name))
        return ports[-1]

    for p in range(config.ports):
        rx, tx = switch.rx[p], switch.tx[p]
        for name, field in (("data", "data"), ("bytes", "count"), ("last", "last"), ("error", "error")):
            m.d.comb += rx.payload[field].eq(port(f"rx{p}_{name}", rx.payload[field]))
            if name != "error":
                m.d.comb += port(f"tx{p}_{name}", tx.payload[field]).eq(tx.payload[field])
        m.d.comb += [
            rx.valid.eq(port(f"rx{p}_valid", rx.valid)),
            port(f"rx{p}_ready", rx.ready).eq(rx.ready),
            port(f"tx{p}_valid", tx.valid).eq(tx.valid),
            tx.ready.eq(port(f"tx{p}_ready", tx.ready)),
        ]
    for name in ("now_us", "link", "seed", "operator_key", "own_mac", "own_ip"):
        m.d.comb += getattr(switch, name).eq(port(name, getattr(switch, name)))
    parents = Cat(switch.parents)
    m.d.comb += parents.eq(port("parents", parents))
    m.d.comb += [port("busy", switch.busy).eq(switch.busy), port("trace_valid", switch.traced).eq(switch.traced)]
    for name in ("outcome", "port", "job", "member", "seq"):
        value = Value.cast(switch.trace[name])
        m.d.comb += port(f"trace_{name}", value).eq(value)
    for name in gated_parts(config) if gated else []:
        m.domains += (domain := ClockDomain(name))
        # Equal names in all parts let simulators see which modules are the same.
        domain.clk, domain.rst = Signal(name="clk"), Signal(name="rst")
        m.d.comb += [
            domain.clk.eq(port(f"{name}_clk", domain.clk)),
            domain.rst.eq(ResetSignal()),
            port(f"{name}_active", switch.active[name]).eq(switch.active[name]),
        ]
    return m, ports


@contextlib.contextmanager
def payload_memories_uninitialised():
    """Leave out the zeros of memories whose words are never read before they are written.

    Amaranth 0.5 writes initial contents bit by bit: half a minute and millions of lines for the slots alone. The
    replaced method is internal to Amaranth, which is pinned exactly.
    """
    emit = rtlil_backend.ModuleEmitter.emit_memory

    def emit_memory(self, cell_idx, cell):
        if not NEVER_READ_BEFORE_WRITTEN.keys() & cell.attributes.keys():
            emit(self, cell_idx, cell)

    rtlil_backend.ModuleEmitter.emit_memory = emit_memory
    try:
        yield
    finally:
        rtlil_backend.ModuleEmitter.emit_memory = emit


@contextlib.contextmanager
def for_synthesis():
    """As `payload_memories_uninitialised`, for Yosys' synthesis. In addition, the read data of a word in the cycle of
    its write is left undefined where no logic uses it (`NEVER_READ_WHILE_WRITTEN`).

    Amaranth promises the old word, which ECP5's block RAM does not give: Yosys would add a register and a mux for every
    bit. Not for simulators nor for Verilog, where it would become statements about X.
    """
    emit = rtlil_backend.ModuleEmitter.emit_read_port

    def emit_read_port(self, cell_idx, cell):
        if not NEVER_READ_WHILE_WRITTEN.keys() & self.netlist.cells[cell.memory].attributes.keys():
            return emit(self, cell_idx, cell)
        made, builder = self.builder.cell, self.builder

        def cell_with_open_collisions(kind, *args, **options):
            if kind == "$memrd_v2":
                mask = options["parameters"]["COLLISION_X_MASK"]
                options["parameters"]["COLLISION_X_MASK"] = Const(2 ** len(mask) - 1, len(mask))
            return made(kind, *args, **options)

        builder.cell = cell_with_open_collisions
        try:
            return emit(self, cell_idx, cell)
        finally:
            del builder.cell

    rtlil_backend.ModuleEmitter.emit_read_port = emit_read_port
    try:
        with payload_memories_uninitialised():
            yield
    finally:
        rtlil_backend.ModuleEmitter.emit_read_port = emit


def rtlil(config: Config, *, gated: bool = False, places: bool = False) -> str:
    """Return the switch as RTLIL, top module `switch`. `gated`: see `flat`. With `places` it says where in the sources
    each statement stands."""
    module, ports = flat(config, gated=gated)
    with payload_memories_uninitialised():
        return rtlil_backend.convert(module, name="switch", ports=ports, emit_src=places)


def component_rtlil(part: Component, name: str, *, synthesis: bool = False) -> str:
    """Return any component as RTLIL, top module `name`, ports by path: rx__0__payload, ... For `synthesis` see
    `for_synthesis`."""
    values = (Value.cast(port) for _, _, port in part.signature.flatten(part))
    with for_synthesis() if synthesis else payload_memories_uninitialised():
        return rtlil_backend.convert(
            part, name=name, ports=[value for value in values if isinstance(value, Signal)], emit_src=False
        )


def component_verilog(part: Component, name: str, folder: Path) -> Path:
    """Write any component as Verilog-2005, `name`.v in the folder, top module `name`. Raises RuntimeError if a signal
    has two drivers or none, is in a combinational loop, or is held by a latch."""
    (folder / f"{name}.il").write_text(component_rtlil(part, name))
    tool(
        "yosys",
        [
            "-q",
            "-l",
            f"{name}.log",
            "-p",
            f"read_rtlil {name}.il; proc; {NO_LATCH}; opt_expr; opt_merge; opt_clean -purge; check -assert; "
            f"memory_collect; opt_clean -purge; write_verilog -noattr {name}.v",
        ],
        folder,
    )
    return folder / f"{name}.v"


def verilog(config: Config) -> str:
    """Write the switch as Verilog-2005, top module `switch`, clock `clk`, synchronous reset `rst`."""
    # Not by `amaranth.back.verilog`, which keeps processes: a signal partly driven by constants becomes an
    # `always @*` with an empty sensitivity list, which simulators never run.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "switch.il").write_text(rtlil(config))
        tool(
            "yosys",
            [
                "-q",
                "-p",
                "read_rtlil switch.il; proc; opt_expr; opt_clean; memory_collect; write_verilog -noattr switch.v",
            ],
            Path(folder),
        )
        return (Path(folder) / "switch.v").read_text()


def tool(name: str, arguments: list[str], folder: Path, *, seconds: float | None = None) -> None:
    """Run a YoWASP tool, "yosys", "nextpnr-ecp5" or "ecppack", in a folder to which its files are relative.

    Raises RuntimeError with the end of the tool's output if it fails, and subprocess.TimeoutExpired after so many
    seconds, with the tool stopped.
    """
    package = "yowasp_" + {"ecppack": "nextpnr-ecp5"}.get(name, name).replace("-", "_")
    function = f"run_{name}".replace("-", "_")
    # From this interpreter's folder and not from PATH: the version must not depend on the caller.
    call = f"import sys, {package}; sys.exit({package}.{function}({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", call], cwd=folder, text=True, capture_output=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{(done.stderr or done.stdout)[-4000:]}")

"""A reader and a writer of units as one component, and any component with a bus as Verilog."""

import tempfile
from pathlib import Path

from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import ClockDomain, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.interface.axi import Axi4, pins
from hw.replay.memory.units import Beat, UnitReader, UnitWriter
from hw.synthesis.emit import payload_memories_uninitialised, tool

__all__ = ["Units", "verilog"]


class Units(wiring.Component):
    """A reader and a writer at one bus. `stat_error` is 1 for each error of either."""

    def __init__(
        self,
        address_bits: int,
        *,
        data_bits: int = 64,
        reader: type[UnitReader] = UnitReader,
        writer: type[UnitWriter] = UnitWriter,
    ):
        self.data_bits = data_bits
        self.reader, self.writer = (unit(address_bits, data_bits=data_bits) for unit in (reader, writer))
        super().__init__(
            {
                "reads": In(stream.Signature(address_bits)),
                "found": Out(stream.Signature(Beat(data_bits))),
                "writes": In(stream.Signature(address_bits)),
                "put": In(stream.Signature(64)),
                "busy": Out(1),
                "stat_error": Out(1),
                "axi": Out(Axi4(address_bits, data_bits=data_bits)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader, m.submodules.writer = reader, writer = self.reader, self.writer
        for unit, channels in ((reader, ("ar", "r")), (writer, ("aw", "w", "b"))):
            for name in channels:
                connect(m, getattr(unit, name), flipped(getattr(self.axi, name)))
        for inner, outer in (
            (reader.units, self.reads),
            (reader.beats, self.found),
            (writer.units, self.writes),
            (writer.rows, self.put),
        ):
            connect(m, inner, flipped(outer))
        m.d.comb += [self.busy.eq(writer.busy), self.stat_error.eq(reader.error | writer.error)]
        return m


def verilog(component: wiring.Component, top: str) -> str:
    """Return a component as Verilog. A bus has the standard's names, such as `axi_awaddr`; a stream has
    `reads_payload`, `reads_valid` and `reads_ready`; the clock is `clk`, the synchronous reset `rst`."""
    m, sync, ports = Module(), ClockDomain("sync"), []
    m.domains.sync, m.submodules.part = sync, component

    def port(name, value, goes_out):
        ports.append(Signal(len(value), name=name))
        m.d.comb += ports[-1].eq(value) if goes_out else value.eq(ports[-1])

    for name, member in component.signature.members.items():
        inner, mine = getattr(component, name), member.flow == Out
        if member.is_port:
            port(name, Value.cast(inner), mine)
        elif isinstance(member.signature, stream.Signature):
            port(f"{name}_payload", Value.cast(inner.payload), mine)
            port(f"{name}_valid", inner.valid, mine)
            port(f"{name}_ready", inner.ready, not mine)
        else:
            for wire, flow, value in pins(inner):
                port(f"{name}_{wire}", value, (flow == Out) == mine)
    with payload_memories_uninitialised():
        rtlil = rtlil_backend.convert(m, name=top, ports=[sync.clk, sync.rst, *ports], emit_src=False)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "part.il").write_text(rtlil)
        tool(
            "yosys",
            ["-q", "-p", "read_rtlil part.il; proc; opt_expr; opt_clean; memory_collect; write_verilog -noattr part.v"],
            Path(folder),
        )
        return (Path(folder) / "part.v").read_text()

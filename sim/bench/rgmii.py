"""A gigabit port of an ECP5 board, MAC and pins included, as Verilog for simulators."""

from pathlib import Path

from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import ClockDomain, Module, Signal

from hw.board.ecp5.liteeth import verilog as mac_verilog
from hw.board.ecp5.rgmii import MAC, RgmiiPort
from hw.synthesis.emit import payload_memories_uninitialised, tool

__all__ = ["DOMAIN", "verilog"]

DOMAIN = "wire"
PRIMITIVES = Path(__file__).with_name("ecp5_pins.v")


def verilog(port: RgmiiPort, top: str, folder: Path) -> str:
    """Return Verilog with clocks `clk` and `wire_clk`, resets `rst` and `wire_rst`, word streams `tx_*` and `rx_*`,
    pins `rgmii_*`. `sample` is a clock for models that sample the pins between their edges. `folder` keeps Yosys'
    inputs."""
    m, ports = Module(), []

    def pin(name: str, like) -> Signal:
        ports.append(Signal(len(like), name=name))
        return ports[-1]

    clocks = []
    for domain, prefix in (("sync", ""), (DOMAIN, "wire_")):
        clocks.append(ClockDomain(domain))
        m.domains += clocks[-1]
        clocks[-1].clk.name, clocks[-1].rst.name = f"{prefix}clk", f"{prefix}rst"
        ports += [clocks[-1].clk, clocks[-1].rst]
    m.submodules.port = port
    for name, field in (("data", "data"), ("bytes", "count"), ("last", "last"), ("error", "error")):
        m.d.comb += port.tx.payload[field].eq(pin(f"tx_{name}", port.tx.payload[field]))
        m.d.comb += pin(f"rx_{name}", port.rx.payload[field]).eq(port.rx.payload[field])
    m.d.comb += [
        port.tx.valid.eq(pin("tx_valid", port.tx.valid)),
        pin("tx_ready", port.tx.ready).eq(port.tx.ready),
        pin("rx_valid", port.rx.valid).eq(port.rx.valid),
        port.rx.ready.eq(pin("rx_ready", port.rx.ready)),
        pin("link", port.link).eq(port.link),
    ]
    for name in ("tx_clk", "tx_ctl", "tx_data"):
        m.d.comb += pin(f"rgmii_{name}", getattr(port, name)).eq(getattr(port, name))
    for name in ("rx_ctl", "rx_data"):
        m.d.comb += getattr(port, name).eq(pin(f"rgmii_{name}", getattr(port, name)))
    pin("sample", Signal())
    folder.mkdir(parents=True, exist_ok=True)
    with payload_memories_uninitialised():
        (folder / "port.il").write_text(rtlil_backend.convert(m, name=top, ports=ports, emit_src=False))
    tool(
        "yosys",
        ["-q", "-p", "read_rtlil port.il; proc; opt_expr; opt_clean; memory_collect; write_verilog -noattr port.v"],
        folder,
    )
    return "\n".join([PRIMITIVES.read_text(), mac_verilog(MAC), (folder / "port.v").read_text()])

"""Memory of the replay service in the top module of a Xilinx board: its controller, and the clock domain crossing to
it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import connect

from hw.board.xilinx import ip as xilinx_ip
from hw.board.xilinx.axi_crossing import AxiCrossing, AxiNarrower
from hw.board.xilinx.ip import Ip
from hw.board.xilinx.mig import project
from hw.interface.axi import pins

if TYPE_CHECKING:
    from hw.board.xilinx.top import Top

__all__ = ["MEMORIES"]


def behind_crossing(
    top: "Top", m: Module, ip: Ip, *, prefix: str, clock: str, mhz: float, wires: Callable[[Value], dict[str, Any]]
) -> None:
    """Add a controller that makes the clock of its port. `prefix` is that of the port's pins; `wires` are the
    connections of its other pins, given the reset of that clock."""
    m.domains += ClockDomain("memory")
    made, in_reset = Signal(name="memory_clock"), Signal(name="memory_in_reset")
    m.d.comb += [ClockSignal("memory").eq(made), ResetSignal("memory").eq(in_reset)]
    m.submodules.crossing = crossing = AxiCrossing(
        top.address_bits, memory_domain="memory", data_bits=top.config.bus_bits
    )
    connect(m, top.memory, crossing.manager)
    axi = {}
    for name, flow, value in pins(crossing.memory):
        wire = Signal(ip.pins[prefix + name].width, name=f"axi_{name}")
        m.d.comb += wire.eq(value) if flow.name == "Out" else value.eq(wire)
        axi[prefix + name] = wire
    m.submodules.memory = ip.instance(**{clock: made, f"{clock}_sync_rst": in_reset}, **axi, **wires(in_reset))
    top.domain("memory", mhz, f"memory/{clock}")
    top.cross("core", "memory")


def ddr3(top: "Top", m: Module) -> None:
    listed = tuple(pin for pin in top.platform.pins if pin.port.startswith("ddr3_"))
    bits = top.config.bus_bits
    ip = xilinx_ip.ddr3(project=project(listed, part=top.platform.part, data_bits=bits), data_bits=bits)
    top.take(ip)
    raw = Signal(name="memory_raw")
    m.submodules.ddr_clk = Instance("IBUFDS", i_I=top.port("ddr_clk_p"), i_IB=top.port("ddr_clk_n"), o_O=raw)
    pads = {name: top.pad(name) for name in ip.pins if name.startswith("ddr3_")}
    behind_crossing(
        top,
        m,
        ip,
        prefix="s_axi_",
        clock="ui_clk",
        mhz=1e6 / 1320 / 4,
        wires=lambda in_reset: {
            "sys_clk_i": raw,
            "clk_ref_i": ClockSignal(),
            "sys_rst": ResetSignal("init"),
            "aresetn": ~in_reset,
            "app_sr_req": 0,
            "app_ref_req": 0,
            "app_zq_req": 0,
            **pads,
        },
    )


def ddr4(top: "Top", m: Module) -> None:
    ip = xilinx_ip.ddr4(input_ps=3332, data_bits=top.config.bus_bits)
    top.take(ip)
    raw = Signal(name="memory_raw")
    m.submodules.ddr_clk = Instance("IBUFDS", i_I=top.port("ddr_clk_p"), i_IB=top.port("ddr_clk_n"), o_O=raw)
    pads = {name: top.pad(name.removeprefix("c0_")) for name, port in ip.pins.items() if port.clock == "pad"}
    control = {name: 0 for name, port in ip.pins.items() if "_ctrl_" in name and port.flow == "in"}
    behind_crossing(
        top,
        m,
        ip,
        prefix="c0_ddr4_s_axi_",
        clock="c0_ddr4_ui_clk",
        mhz=1e6 / 833 / 4,
        wires=lambda in_reset: {
            "c0_sys_clk_i": raw,
            "sys_rst": ResetSignal("init"),
            "c0_ddr4_aresetn": ~in_reset,
            **control,
            **pads,
        },
    )


def hbm(top: "Top", m: Module) -> None:
    if top.config.bus_bits != 2 * AxiNarrower.NARROW_BITS:
        raise ValueError(f"a switch with HBM must have a bus of 512 bits, not {top.config.bus_bits}")
    ip = xilinx_ip.hbm()
    top.take(ip)
    m.submodules.narrower = narrower = AxiNarrower(top.address_bits)
    # No request before the controller has initialised itself (PG276, apb_complete).
    complete, up = Signal(), Signal()
    m.submodules.up = FFSynchronizer(complete, up)
    for name in ("aw", "ar"):
        i, o = getattr(top.memory, name), getattr(narrower.manager, name)
        m.d.comb += [o.payload.eq(i.payload), o.valid.eq(i.valid & up), i.ready.eq(o.ready & up)]
    for name, forth in (("w", True), ("b", False), ("r", False)):
        ours, its = getattr(top.memory, name), getattr(narrower.manager, name)
        i, o = (ours, its) if forth else (its, ours)
        m.d.comb += [o.payload.eq(i.payload), o.valid.eq(i.valid), i.ready.eq(o.ready)]
    axi = {}
    for name, flow, value in pins(narrower.memory):
        pin = ip.pins.get(f"AXI_00_{name.upper()}")
        if pin:
            wire = Signal(pin.width, name=f"axi_{name}")
            m.d.comb += wire.eq(value) if flow.name == "Out" else value.eq(wire)
            axi[pin.name] = wire
    m.submodules.memory = ip.instance(
        AXI_00_ACLK=ClockSignal(),
        AXI_00_ARESET_N=~ResetSignal(),
        AXI_00_WDATA_PARITY=0,
        HBM_REF_CLK_0=ClockSignal("init"),
        APB_0_PCLK=ClockSignal("init"),
        APB_0_PRESET_N=~ResetSignal("init"),
        APB_0_PWDATA=0,
        APB_0_PADDR=0,
        APB_0_PENABLE=0,
        APB_0_PSEL=0,
        APB_0_PWRITE=0,
        apb_complete_0=complete,
        DRAM_0_STAT_CATTRIP=top.port("hbm_cattrip"),
        **axi,
    )
    top.cross("core", "init")


MEMORIES = {"ddr3": ddr3, "ddr4": ddr4, "hbm": hbm}
"""The function that adds each memory to the top, by `Platform.memory`."""
